"""Lake tables: names, locations, layouts, and which topics and fields they get."""
