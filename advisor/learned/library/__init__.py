"""The learned models of library kernels."""
