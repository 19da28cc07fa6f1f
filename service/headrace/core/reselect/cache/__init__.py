"""The reselect column cache: its rows, what they are worth, and whose they are."""
