"""Measured rows and launch records: their columns, and how they are read and written."""
