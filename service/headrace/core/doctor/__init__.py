"""What will go wrong with a pipeline, as the package of each system reports it. Pure."""
