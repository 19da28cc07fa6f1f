"""Running tasks: what moves the values of the core between the ports."""
