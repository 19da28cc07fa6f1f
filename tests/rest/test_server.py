"""The socket on which a worker listens."""

from __future__ import annotations

import socket

import pytest

from headrace.rest.server import bind


@pytest.mark.parametrize("host", ["", "127.0.0.1"])
def test_no_answer_waits_for_the_clients_acknowledgement(host: str) -> None:
    """An answer in two packets on a kept-open connection would take 40 ms (Nagle, delayed ACK)."""
    with bind(host, 0) as listener, socket.create_connection(("127.0.0.1", listener.getsockname()[1])):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
