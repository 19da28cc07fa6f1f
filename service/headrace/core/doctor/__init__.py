"""What will go wrong, and what to do about it: rules over what was read of a pipeline's parts. Pure."""
