"""Reading and writing configurations: tuned tables, defaults, models, rows, routing, and the offline audit."""
