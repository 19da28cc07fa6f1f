"""Which changes go into one batch, and which offsets may be committed after it."""
