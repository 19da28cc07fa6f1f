"""Dead letters: count and list them, and send them through a task again."""
