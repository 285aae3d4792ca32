"""Steps of a model, on the terminal and as a page."""
