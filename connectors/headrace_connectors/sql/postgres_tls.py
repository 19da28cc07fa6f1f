"""The reason why a PostgreSQL server's certificate is refused, which libpq does not report.

libpq reports an expired certificate and one of an unknown authority with the same words. Python's ``ssl`` reports which
of them it is, so a second handshake asks for the reason. It ends before any credentials are sent.
"""

from __future__ import annotations

import socket
import ssl

from headrace.core.reselect.options import DatabaseOptions

_SSL_REQUEST = bytes.fromhex("0000000804d2162f")
"""PostgreSQL's SSLRequest message; the server answers with ``S`` and continues with TLS."""
_SECONDS = 5.0


def certificate_problem(database: DatabaseOptions) -> str:
    """Return OpenSSL's reason for the first server whose certificate is not trusted; empty if there is none."""
    return next(filter(None, (_problem(address, database) for address in database.servers)), "")


def _problem(address: tuple[str, int], database: DatabaseOptions) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # libpq reports another name itself
    try:
        context.load_verify_locations(database.sslrootcert)
        with socket.create_connection(address, _SECONDS) as connection:
            connection.sendall(_SSL_REQUEST)
            if connection.recv(1) == b"S":
                context.wrap_socket(connection).close()
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except (OSError, ValueError):
        return ""
    return ""
