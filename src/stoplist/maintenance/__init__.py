"""What an operator does to a whole deployment: after a restore, a copy to another database, a check of everything."""
