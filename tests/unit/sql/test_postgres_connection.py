"""Large results are read in large pieces, and nothing else waits longer."""

from __future__ import annotations

import socket
from collections.abc import Callable, Generator, Iterator

import pytest
from psycopg.waiting import Ready, Wait, wait

from headrace_connectors.sql.postgres_connection import PAUSE_SECONDS, in_large_pieces

PIECE = 1000


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Provide the server's and the client's end of a connection."""
    server, client = socket.socketpair()
    with server, client:
        yield server, client


def reading(client: socket.socket, total: int, at_most: int) -> Generator[Wait, Ready | int, list[int]]:
    """Read ``total`` bytes as psycopg reads a result: send, then wait for each piece. Returns the pieces' sizes."""
    yield Wait.RW
    pieces: list[int] = []
    while sum(pieces) < total:
        while not (yield Wait.R):
            pass
        pieces.append(len(client.recv(at_most)))
    return pieces


def read(client: socket.socket, total: int, pause: Callable[[float], None], at_most: int = 1 << 16) -> list[int]:
    """Return the sizes of the pieces in which the client reads ``total`` bytes."""
    operation = reading(client, total, at_most)
    return wait(in_large_pieces(operation, client.fileno(), pause), client.fileno(), timeout=10)


def test_the_rest_of_a_result_is_awaited_with_a_pause(sockets: tuple[socket.socket, socket.socket]) -> None:
    """What the server sends during a pause is read as one piece."""
    server, client = sockets
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        for _ in range(3):
            server.send(bytes(PIECE))

    server.send(bytes(PIECE))
    assert read(client, 7 * PIECE, pause) == [PIECE, 3 * PIECE, 3 * PIECE]
    assert pauses == [PAUSE_SECONDS] * 2


def test_a_result_of_one_piece_is_read_without_a_pause(sockets: tuple[socket.socket, socket.socket]) -> None:
    """Most SELECT statements of small batches return a few rows, which the server sends at once."""
    server, client = sockets
    server.send(bytes(PIECE))
    assert read(client, PIECE, pytest.fail) == [PIECE]


def test_the_first_part_of_a_result_is_awaited_without_a_pause(sockets: tuple[socket.socket, socket.socket]) -> None:
    """While the server executes the statement, psycopg waits without a delay."""
    _, client = sockets
    waiting = in_large_pieces(reading(client, PIECE, PIECE), client.fileno(), pytest.fail)
    assert next(waiting) == Wait.RW
    assert waiting.send(Ready.W) == Wait.R


def test_pieces_that_have_arrived_are_read_without_a_pause(sockets: tuple[socket.socket, socket.socket]) -> None:
    """A client that is slower than the server never pauses."""
    server, client = sockets
    server.send(bytes(3 * PIECE))
    assert read(client, 3 * PIECE, pytest.fail, PIECE) == [PIECE] * 3


def test_the_error_of_an_operation_is_raised(sockets: tuple[socket.socket, socket.socket]) -> None:
    """psycopg reports a lost connection from within the operation."""
    _, client = sockets

    def failing() -> Generator[Wait, Ready | int, int]:
        yield Wait.W
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        wait(in_large_pieces(failing(), client.fileno()), client.fileno(), timeout=10)
