"""The GPUs the advisor knows: `GpuSpec`, loaded from `ceilings/` and checked."""
