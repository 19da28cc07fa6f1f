"""The nouns: events and batches in columns, schemas and types, keys, positions, errors."""
