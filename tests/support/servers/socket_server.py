"""A server on 127.0.0.1 that handles one connection after the other."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def socket_server(handle: Callable[[socket.socket], None]) -> Iterator[int]:
    """Serve each connection with ``handle``, which may raise OSError when the client has gone. Yield the port."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # the listener is closed
                return
            with connection, suppress(OSError):
                connection.settimeout(60)  # a client that sends nothing must not block the thread
                handle(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(70)
            assert not thread.is_alive(), "a client has left a connection open"


@contextmanager
def answering(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """An HTTP server that sends ``answer`` on each connection and closes it: its URL, and what it received."""
    received: list[bytes] = []

    def handle(connection: socket.socket) -> None:
        received.append(connection.recv(65536))
        connection.sendall(answer)

    with socket_server(handle) as port:
        yield f"http://127.0.0.1:{port}", received


@contextmanager
def dripping(head: bytes) -> Iterator[str]:
    """An HTTP server that sends a head, and then a byte every 20 ms until the client goes away: its URL."""
    ended = threading.Event()

    def handle(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(head)
        while not ended.wait(0.02):
            connection.sendall(b"x")

    with socket_server(handle) as port:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            ended.set()
