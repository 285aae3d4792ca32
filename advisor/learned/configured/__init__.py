"""Launches whose configuration is known, of any family: what is learned of them beyond the analytical model."""
