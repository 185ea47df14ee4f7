"""The pages: what people do with opt-outs, keys and organizations in a browser. One .py and one .html a screen."""
