"""`@advisor.autotune`: one file per concept; `decorator.py` is the public face."""
