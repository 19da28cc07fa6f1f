"""A TLS server on 127.0.0.1 that answers each connection once. It records what it has seen of its clients."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.servers.certificates import Authority, Identity
from support.servers.socket_server import socket_server


@dataclass(slots=True)
class SeenClients:
    """The server's port, and by connection what clients sent, their certificates, and handshakes that failed."""

    port: int = 0
    sent: list[bytes] = field(default_factory=list)
    certificates: list[Any] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


@contextlib.contextmanager
def tls_server(
    folder: Path, identity: Identity, answer: Callable[[bytes], bytes], clients: Authority | None = None
) -> Iterator[SeenClients]:
    """Serve TLS with ``identity``. ``clients`` is the authority of the certificates that clients must have."""
    file = folder / "tls_server.pem"
    file.write_bytes(identity.pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=clients.pem().decode())
    seen = SeenClients()

    def handle(connection: socket.socket) -> None:
        connection.settimeout(10)
        try:
            with context.wrap_socket(connection, server_side=True) as stream:
                seen.certificates.append(stream.getpeercert())
                sent = stream.recv(65536)
                seen.sent.append(sent)
                if sent:
                    stream.sendall(answer(sent))
        except OSError as error:
            seen.failures.append(str(error))

    with socket_server(handle) as seen.port:
        yield seen
