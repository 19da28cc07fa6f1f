"""The HTTP client of workers and commands, on aiohttp: for coroutines, and for threads without an event loop.

A time limit of a socket begins again with each byte, so a server that sends a byte now and then could hold a caller
forever. The limits here are for the complete request with its redirects, and for the size of the answer.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import threading
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus

import aiohttp
from yarl import URL

from headrace.runtime.threads import LoopThread

MAX_BYTES = 16 * 1024 * 1024
_MAX_HEADER_BYTES = 65_536
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_loop_lock = threading.Lock()


class TooLarge(Exception):
    """An answer has more bytes than the client accepts."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A status with a body. The names of the headers are compared without case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpClient:
    """Sends requests, each once and on a connection of its own, without cookies.

    A complete answer has to arrive within ``seconds``, and a connection with its TLS handshake within
    ``connect_seconds`` if given. ``tls`` is None for the authorities that the system trusts. A body of more than
    ``max_bytes`` is an error; that of an answer without success is cut there.

    ``proxy`` is ``host:port`` of a proxy for all addresses. Without it ``environment_proxies`` uses the variables
    HTTP_PROXY, HTTPS_PROXY and NO_PROXY. At most ``redirects`` redirects of a GET request are followed, those to
    another scheme, host or port without the headers of the request, because they may contain credentials. An answer
    that redirects elsewhere, or once more, is returned as it is.
    """

    seconds: float
    tls: ssl.SSLContext | None = None
    proxy: str = ""
    environment_proxies: bool = False
    redirects: int = 0
    connect_seconds: float | None = None
    max_bytes: int = MAX_BYTES

    async def request(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> HttpResponse:
        """Return the answer to a request. ``url`` is sent as it is, so its parts are quoted.

        Raises TooLarge; TimeoutError, SSLCertVerificationError or another OSError with the cause.
        """
        try:
            async with asyncio.timeout(self.seconds):
                return await self._follow(method, url, headers or {}, body)
        except aiohttp.ServerTimeoutError as error:
            raise TimeoutError(f"no connection within {self.connect_seconds:g} s") from error
        except TimeoutError as error:
            raise TimeoutError(f"no complete answer within {self.seconds:g} s") from error
        except (aiohttp.ClientError, ValueError) as error:
            raise _cause(error) from error

    def send(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> HttpResponse:
        """Block the calling thread until the request ends. Otherwise as ``request``."""
        with _loop_lock:  # two threads may send the first request
            loop = _loop_thread()
        return loop.result(self.request(method, url, headers, body))

    async def _follow(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        target = URL(url, encoded=url.isascii())
        # The limits of headers are those of Python's own client, because cookies of proxies may exceed aiohttp's.
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self.tls or True, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            middlewares=[_once],
            timeout=aiohttp.ClientTimeout(total=None, connect=self.connect_seconds),
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
        ) as session:
            for _ in range(self.redirects if method == "GET" else 0):
                response = await self._answer(session, method, target, headers, body)
                location = response.headers.get("Location")
                if response.status not in _REDIRECTS or not location:
                    return response
                following = target.join(URL(location))
                if following.scheme not in ("http", "https") or not following.host:
                    return response
                if following.origin() != target.origin():
                    headers = {}
                target = following.with_user(None)  # a user in the address would become credentials for that server
            return await self._answer(session, method, target, headers, body)

    async def _answer(
        self, session: aiohttp.ClientSession, method: str, url: URL, headers: Mapping[str, str], body: bytes | None
    ) -> HttpResponse:
        proxy = self.proxy
        if not proxy and self.environment_proxies and not urllib.request.proxy_bypass(url.authority):
            proxy = urllib.request.getproxies().get(url.scheme, "")
        content = bytearray()
        async with session.request(
            method,
            url,
            headers={"Accept-Encoding": "identity", **headers},
            data=body,
            allow_redirects=False,
            proxy=proxy if "://" in proxy else f"http://{proxy}" if proxy else None,
        ) as answer:
            async for part in answer.content.iter_any():
                content += part
                if len(content) > self.max_bytes:
                    if answer.status < HTTPStatus.MULTIPLE_CHOICES:
                        raise TooLarge(f"the answer is larger than {self.max_bytes} bytes")
                    del content[self.max_bytes :]
                    break
            return HttpResponse(answer.status, answer.headers, bytes(content))


class _Unanswered(aiohttp.ClientError):
    """A connection ended before an answer; ``__cause__`` is why."""


async def _once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Send a request at most once: aiohttp repeats GET, PUT and DELETE after these two errors, and no others."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _Unanswered from error


def basic(user_and_password: str) -> str:
    """Return the value of the header Authorization for ``user:password``."""
    return f"Basic {base64.b64encode(user_and_password.encode()).decode()}"


def _cause(error: BaseException) -> OSError:
    """Return the error that a blocking socket would raise."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError) and isinstance(error.certificate_error, OSError):
        return error.certificate_error
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno or 0  # negative for names that cannot be resolved, OpenSSL's own for TLS
        if number <= 0 or isinstance(error.os_error, ssl.SSLError):
            return error.os_error
        return OSError(number, os.strerror(number))
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return OSError(f"the proxy opens no tunnel: {error.status} {error.message}")
    if isinstance(error, _Unanswered):
        error = error.__cause__ or error
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return ConnectionResetError("Remote end closed connection without response")
    if isinstance(error, OSError):
        return error
    return OSError(f"the answer is not one of HTTP ({type(error).__name__})")


@cache
def _loop_thread() -> LoopThread:
    thread = LoopThread("headrace-http")
    thread.start()
    return thread
