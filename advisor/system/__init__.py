"""Files, folders, processes, settings and errors: what is not about kernels."""
