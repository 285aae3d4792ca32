"""The devices that launches are timed on: a GPU, or a fake one."""
