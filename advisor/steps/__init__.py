"""Whole layers as serving stacks launch them: several kernels after one another, each leaving something in the L2 for the next."""
