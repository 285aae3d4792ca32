"""The frozen dataclasses that everything passes around, and their versioned JSON."""
