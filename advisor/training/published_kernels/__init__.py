"""Constants of compiled kernels (`compiled.phases`), fitted to launches of published packages and judged on GPUs left out."""
