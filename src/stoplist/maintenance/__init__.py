"""Operations on a whole deployment: after a restore, a copy to another database, a check of the installation."""
