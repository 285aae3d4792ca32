"""Tuned tables of vLLM and SGLang: names, entries, defaults, which entry runs, models, and the offline audit."""
