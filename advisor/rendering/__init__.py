"""The result on every surface: `terminal`, `page` (HTML) and `markdown` (pull requests, step summaries).

Rendering computes nothing of the model: it formats, sorts and scales what the result says. It knows only the schema.
"""
