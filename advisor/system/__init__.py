"""Files, processes and the environment: what is not about kernels."""
