"""Kafka Connect's REST API: one router per resource, one file for bodies, one for errors (``connect.md``)."""
