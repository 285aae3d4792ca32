"""Fitting, judging and describing the learned model; nothing that serves imports it."""
