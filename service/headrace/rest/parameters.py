"""Query parameters of Headrace's own resources. Unlike Kafka Connect, they refuse a value that they do not know.

Tests: ``tests/rest/test_dead_letters.py``, ``tests/rest/test_timeline.py``.
"""

from __future__ import annotations

from fastapi import Request

from headrace.core.model.errors import RestError

_FLAGS = {"true": True, "false": False}


def number(request: Request, name: str, default: int, most: int) -> int:
    """Return a number from 1 to ``most``. Raises RestError 400."""
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and 1 <= int(text) <= most):
        raise RestError(f"{name}: must be a number between 1 and {most}", 400)
    return int(text)


def flag(request: Request, name: str) -> bool:
    """Return whether a flag is ``true``; without it, it is not. Raises RestError 400 for any other value."""
    text = request.query_params.get(name, "false").lower()
    if text not in _FLAGS:
        raise RestError(f"{name}: must be true or false", 400)
    return _FLAGS[text]
