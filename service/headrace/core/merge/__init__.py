"""What a batch does to a table: the fold, its gates, key changes and the ledger."""
