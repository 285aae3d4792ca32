"""What the compiler made of a kernel: offline compile, demand read from the IR, registers, spills, instruction mix."""
