"""A worker: its connectors and tasks, the cluster and its stores, and the herder that REST calls."""
