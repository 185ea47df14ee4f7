"""The pages for people: opt-outs, keys, organizations and accounts in a browser. One .py and one .html per screen."""
