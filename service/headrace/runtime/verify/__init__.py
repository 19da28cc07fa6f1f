"""``headrace verify``: reads both ends, compares, and repairs what differs."""
