"""What nobody said of a kernel's arguments, guessed from how the kernel uses them."""
