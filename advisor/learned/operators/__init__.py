"""What is learned of operators beside products, attention and experts: linear and sparse attention, encoders, MLA's products."""
