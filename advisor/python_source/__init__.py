"""What a Python file says of its Triton kernels, read by parsing: nothing of it is run."""
