"""Who asked to be left alone: submit opt-outs, look them up, follow every change."""
