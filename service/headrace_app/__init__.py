"""The application: the ``headrace`` command, and the worker that it builds of the service and the connectors.

Nothing imports this package. ``composition.py`` names the connectors, ``command.py`` reads the command line, and the
other modules are the commands for operators.
"""
