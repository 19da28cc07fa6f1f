"""``headrace resnapshot``: request a snapshot of one table, and follow it."""
