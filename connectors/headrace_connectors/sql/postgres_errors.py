"""psycopg's errors as Headrace's (``reselect.md`` section 4.4): passing, to be changed by an operator, or refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import psycopg_pool

from headrace.core.errors import ConfigError, Fatal, HeadraceError, Retriable

_TRANSIENT = re.compile(r"08|53|57P0|57014|40001|40P01|55P03|25006|XX")
"""SQLSTATEs that pass: connection, resources, shutdown, time-outs, serialization, failover."""
_SETTINGS = re.compile(r"28|3D")
"""SQLSTATEs of a wrong user, password or database."""
_REFUSED_LOGIN = re.compile(
    r"password authentication failed|no password supplied|role .* does not exist|database .* does not exist"
    r"|no pg_hba\.conf entry|permission denied for database|SSL|certificate|could not translate host name"
)


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Raise Headrace's errors instead of the driver's. ``where`` names the database in the message."""
    try:
        yield
    except psycopg_pool.PoolTimeout as error:
        raise Retriable(f"{where}: no connection became free in time; see reselect.database.pool.max.size") from error
    except (psycopg_pool.PoolClosed, psycopg.InterfaceError) as error:
        raise Retriable(f"{where}: the connection is closed") from error
    except psycopg.Error as error:
        raise _translate(error, where) from error


def _translate(error: psycopg.Error, where: str) -> HeadraceError:
    state, said = error.sqlstate, _first_line(error)
    if state is None and isinstance(error, psycopg.OperationalError):
        kind = ConfigError if _REFUSED_LOGIN.search(said) else Retriable
        return kind(f"{where} cannot be reached: {said}")
    if state is not None and _SETTINGS.match(state):
        return ConfigError(f"{where} refuses the connection: {said}", "reselect.database.user")
    if state is not None and _TRANSIENT.match(state):
        return Retriable(f"{where} failed for now ({state}): {said}")
    return Fatal(f"{where} refuses the query ({state}): {said}")


def _first_line(error: psycopg.Error) -> str:
    """The server's primary message: details may carry values of cells."""
    primary = error.diag.message_primary
    return primary or str(error).strip().splitlines()[-1].strip() if str(error).strip() else type(error).__name__
