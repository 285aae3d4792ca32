"""What a launch asks of each pipeline: its IR evaluated and counted, and what the machine code adds."""
