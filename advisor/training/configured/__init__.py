"""Launches of a known configuration where few or none of their kind were measured."""
