"""What was decided, and the file in which processes share it."""
