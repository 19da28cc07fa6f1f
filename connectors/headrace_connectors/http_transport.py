"""HTTP requests with a limit for their complete time and for the size of an answer.

urllib's own time-out holds for each read, so a server that sends a byte now and then could hold a thread forever.
"""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

SECONDS = 10.0
LARGEST = 16 * 1024 * 1024
_LARGEST_OF_AN_ERROR = 4096


class TooLarge(Exception):
    """An answer has more than ``LARGEST`` bytes."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A status with a body and its content type. The body of an error is cut after some kilobytes."""

    status: int
    body: bytes
    content_type: str = ""


def send(
    request: urllib.request.Request,
    tls: ssl.SSLContext | None,
    proxy: str = "",
    *,
    redirects: bool = True,
    seconds: float = SECONDS,
    connect_seconds: float = SECONDS,
) -> Reply:
    """Return the answer to a request, after ``redirects`` if those are followed, within ``seconds``.

    A connection is made within ``connect_seconds``.
    ``proxy`` is ``host:port``. A redirect to another server is followed without headers, because they may contain
    credentials. Raises TooLarge; TimeoutError, SSLCertVerificationError or another OSError.
    """
    with _Deadline(seconds, min(seconds, connect_seconds)) as deadline:
        try:
            reply = _send(request, [_Http(deadline), _Https(deadline, tls), _Redirects(proxy, redirects)], proxy)
            if deadline.expired:  # the end of the connection may look like the end of the body
                raise TimeoutError
        except (OSError, http.client.HTTPException, ValueError) as error:
            if deadline.expired:
                raise TimeoutError(f"no complete answer within {seconds:g} s") from error
            reason = getattr(error, "reason", error)
            if isinstance(reason, OSError):
                raise reason from error
            raise OSError(f"the answer is not one of HTTP ({type(error).__name__})") from error
        return reply


def _send(request: urllib.request.Request, handlers: list[urllib.request.BaseHandler], proxy: str) -> Reply:
    if proxy:
        request.set_proxy(proxy, request.type)
    try:
        with urllib.request.build_opener(*handlers).open(request) as response:
            body = response.read(LARGEST + 1)
            if len(body) > LARGEST:
                raise TooLarge
            if response.length:  # the connection ended before the announced length
                raise http.client.IncompleteRead(body, response.length)
            return Reply(response.status, body, response.headers.get("Content-Type", ""))
    except urllib.error.HTTPError as error:
        with error:
            return Reply(error.code, error.read(_LARGEST_OF_AN_ERROR))


def basic(credentials: str) -> str:
    """Return the value of the header Authorization for ``user:password``."""
    return f"Basic {base64.b64encode(credentials.encode()).decode()}"


class _Deadline:
    """Ends the connections that were made within the block when their time is over.

    It holds a second handle of each, because TLS takes the first one over.
    """

    def __init__(self, seconds: float, connect_seconds: float) -> None:
        self.expired = False
        self._seconds, self._connect_seconds = seconds, connect_seconds
        self._lock = threading.Lock()
        self._connections: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True

    def __enter__(self) -> _Deadline:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            for each in self._connections:
                each.close()
            self._connections.clear()

    def connect(self, address: tuple[str, int], timeout: object, source: tuple[str, int] | None) -> socket.socket:
        """Open a connection, as ``socket.create_connection`` does. The deadline is its time-out."""
        made = socket.create_connection(address, self._connect_seconds, source)
        made.settimeout(self._seconds)
        with self._lock:
            self._connections.append(made.dup())
        if self.expired:
            self._expire()
        return made

    def _expire(self) -> None:
        self.expired = True
        with self._lock:
            for each in self._connections:
                with suppress(OSError):  # the server has ended it
                    each.shutdown(socket.SHUT_RDWR)


class _Http(urllib.request.HTTPHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open a connection that the deadline ends."""
        return self.do_open(_connection(http.client.HTTPConnection, self._deadline), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, deadline: _Deadline, tls: ssl.SSLContext | None) -> None:
        super().__init__(context=tls)
        self._deadline = deadline
        self._tls = tls

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open a connection that the deadline ends."""
        return self.do_open(_connection(http.client.HTTPSConnection, self._deadline), req, context=self._tls)


def _connection(kind: type[http.client.HTTPConnection], deadline: _Deadline) -> Any:
    def make(*arguments: Any, **options: Any) -> http.client.HTTPConnection:
        connection = kind(*arguments, **options)
        connection._create_connection = deadline.connect  # type: ignore[attr-defined]  # http.client's own hook
        return connection

    return make


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect to another server without the credentials, which are for the configured one."""

    def __init__(self, proxy: str, follow: bool) -> None:
        self._proxy = proxy
        self._follow = follow

    def redirect_request(self, req: urllib.request.Request, *answer: Any) -> urllib.request.Request | None:
        """Return the request to the new address, None if it is not followed."""
        followed = super().redirect_request(req, *answer) if self._follow else None
        if followed is None or followed.type not in ("http", "https"):
            return None
        if _server(followed) != _server(req):
            followed.headers = {"Accept": "*/*"}
        if self._proxy:
            followed.set_proxy(self._proxy, followed.type)
        return followed


def _server(request: urllib.request.Request) -> tuple[str, str]:
    """Return scheme and ``host:port`` of a request's URL, also of one for a proxy."""
    url = urlsplit(request.full_url)
    return url.scheme, url.netloc.lower()
