"""The console at ``/ui``: pages for people, made from the documents of the REST API."""
