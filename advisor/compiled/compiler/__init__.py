"""Compiling a kernel for a GPU that is not there, in killable processes, and what the machine code holds."""
