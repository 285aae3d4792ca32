"""Decisions, and the file in which processes share them."""
