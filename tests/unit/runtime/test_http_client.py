"""The HTTP client: limits of time and size, redirects, proxies, TLS, and the errors that callers distinguish."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from select import select

import pytest
from support.servers.certificates import Authority
from support.servers.http_registry import Server
from support.servers.socket_server import answering, dripping

from headrace.config.tls import client_context, server_context
from headrace.runtime.http_client import HttpClient, TooLarge

PATH = "/x"
SECONDS = 60
"""Longer than any answer of the servers here takes."""
CREDENTIALS = {"Authorization": "Bearer secret", "target-sr-cluster": "lsrc-1"}


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    """Servers that are closed after the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def server(servers: ExitStack) -> Server:
    """A server with one document."""
    return document(servers)


def document(servers: ExitStack, tls: ssl.SSLContext | None = None) -> Server:
    made = servers.enter_context(closing(Server(tls)))
    made.answers[PATH] = 200, b"content"
    return made


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


# -- limits -----------------------------------------------------------------------------------------------------------

HEADS = {
    "status": b"HTTP/1.1 200 ",
    "header": b"HTTP/1.1 200 OK\r\nX: ",
    "body": b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n",
    "body without a length": b"HTTP/1.1 200 OK\r\n\r\n",
    "error": b"HTTP/1.1 500 No\r\n\r\n",
    "redirects": b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 1\r\n\r\n",
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_the_complete_request_has_one_deadline(head: bytes) -> None:
    """A server that sends a byte now and then, or redirects again and again, holds a caller until the deadline."""
    with dripping(head) as url, pytest.raises(TimeoutError, match=r"no complete answer within 0\.5 s"):
        HttpClient(0.5, redirects=1_000_000).send("GET", url)


def test_a_connection_has_a_deadline() -> None:
    """It includes the TLS handshake, which a server may never answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = HttpClient(60, connect_seconds=0.2)
        with pytest.raises(TimeoutError, match=r"no connection within 0\.2 s"):
            client.send("GET", f"https://127.0.0.1:{listener.getsockname()[1]}")


def test_a_caller_that_is_cancelled_ends_the_request() -> None:
    """A coroutine that gives up earlier does not wait for the deadline."""

    async def give_up(url: str) -> None:
        async with asyncio.timeout(0.2):
            await HttpClient(600).request("GET", url)

    with dripping(HEADS["header"]) as url, pytest.raises(TimeoutError, match=r"^$"):
        asyncio.run(give_up(url))


def test_the_size_of_an_answer_is_limited(server: Server) -> None:
    """A larger answer is an error and is not cut to a shorter document; an error's text is cut."""
    server.answers |= {"/large": (200, b"x" * 101), "/exact": (200, b"x" * 100), "/error": (500, b"x" * 101)}
    client = HttpClient(SECONDS, max_bytes=100)
    with pytest.raises(TooLarge, match="larger than 100 bytes"):
        client.send("GET", f"{server.url}/large")
    assert client.send("GET", f"{server.url}/exact").body == b"x" * 100
    answer = client.send("GET", f"{server.url}/error")
    assert (answer.status, answer.body) == (500, b"x" * 100)


def test_an_answer_without_end_is_limited() -> None:
    """A body without a length is not read further than the limit."""
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    with dripping(head + b"x" * 100_000) as url, pytest.raises(TooLarge):
        HttpClient(60, max_bytes=1000).send("GET", url)


# -- what is sent -----------------------------------------------------------------------------------------------------


def test_a_url_is_sent_as_it_is_quoted(server: Server) -> None:
    """A colon or slash in a name stays quoted: it would name another resource."""
    server.answers["/subjects/%3A.eu%3Ax%2Fy?a=b%2Fc"] = 200, b"found"
    assert HttpClient(SECONDS).send("GET", f"{server.url}/subjects/%3A.eu%3Ax%2Fy?a=b%2Fc").body == b"found"


def test_a_request_has_no_cookies_of_an_earlier_answer() -> None:
    """Servers see independent requests."""
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["Cookie"])
            self.send_response(302 if self.path == "/" else 200)
            self.send_header("Set-Cookie", "session=1; Path=/")
            self.send_header("Location", "/next")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write no access log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        assert HttpClient(SECONDS, redirects=1).send("GET", f"http://127.0.0.1:{running.server_port}/").status == 200
        running.shutdown()
        thread.join()
    assert seen == [None, None]


def test_threads_and_coroutines_share_a_client(server: Server) -> None:
    """Threads without an event loop send at the same time, and so does a coroutine."""
    client = HttpClient(SECONDS)
    with ThreadPoolExecutor(8) as threads:
        answers = [threads.submit(client.send, "GET", f"{server.url}{PATH}") for _ in range(40)]
        assert asyncio.run(client.request("GET", f"{server.url}{PATH}")).body == b"content"
        assert {answer.result(60).body for answer in answers} == {b"content"}


# -- redirects --------------------------------------------------------------------------------------------------------


def test_redirects_are_not_followed_by_default(server: Server) -> None:
    """A client that does not expect redirects gets the answer."""
    server.moved[PATH] = f"{server.url}/y"
    assert HttpClient(SECONDS).send("GET", f"{server.url}{PATH}", CREDENTIALS).status == 302
    assert len(server.asked) == 1


def test_a_post_is_not_redirected(server: Server) -> None:
    """Its body may contain credentials."""
    server.moved[PATH] = f"{server.url}/y"
    assert HttpClient(SECONDS, redirects=5).send("POST", f"{server.url}{PATH}", CREDENTIALS, b"secret").status == 302
    assert len(server.asked) == 1


@pytest.mark.parametrize("location", ["{other}/x", "//{host}/x", "http://user:password@{host}/x"])
def test_credentials_are_not_sent_to_another_server(server: Server, servers: ExitStack, location: str) -> None:
    """Neither the caller's headers nor a user in the address reach another port of the same host."""
    other = document(servers)
    server.moved[PATH] = location.format(other=other.url, host=other.host)
    assert HttpClient(SECONDS, redirects=1).send("GET", f"{server.url}{PATH}", CREDENTIALS).body == b"content"
    [(_, headers)] = other.asked
    assert {name.lower() for name in headers} <= {"accept", "accept-encoding", "host", "user-agent", "connection"}


def test_credentials_do_not_come_back_after_another_server(server: Server, servers: ExitStack) -> None:
    """A server that redirects back could make the first one answer with more than the caller wanted to request."""
    other = document(servers)
    server.moved[PATH], other.moved[PATH] = f"{other.url}{PATH}", f"{server.url}/y"
    server.answers["/y"] = 200, b"content"
    assert HttpClient(SECONDS, redirects=2).send("GET", f"{server.url}{PATH}", CREDENTIALS).status == 200
    assert ["Authorization" in headers for _, headers in server.asked] == [True, False]


def test_credentials_stay_within_the_server(server: Server) -> None:
    """Another path of the same scheme, host and port gets the headers."""
    server.moved[PATH], server.answers["/y"] = "y", (200, b"content")
    assert HttpClient(SECONDS, redirects=1).send("GET", f"{server.url}{PATH}", CREDENTIALS).body == b"content"
    assert [headers["Authorization"] for _, headers in server.asked] == ["Bearer secret"] * 2


# -- proxies ----------------------------------------------------------------------------------------------------------


def test_proxies_of_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are used if the client says so, and not for the hosts of NO_PROXY; its own proxy takes precedence."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", server.host)
    port = closed_port()
    numeric, named = f"http://127.0.0.1:{port}/x", f"http://localhost:{port}/x"
    server.answers |= {numeric: (200, b"by proxy"), named: (200, b"by proxy")}
    client = HttpClient(SECONDS, environment_proxies=True)
    assert client.send("GET", numeric).body == b"by proxy"
    with pytest.raises(ConnectionRefusedError):
        HttpClient(SECONDS).send("GET", numeric)
    monkeypatch.setenv("NO_PROXY", "localhost")
    assert client.send("GET", numeric).body == b"by proxy"
    with pytest.raises(ConnectionRefusedError):
        client.send("GET", named)
    assert HttpClient(SECONDS, proxy=server.host, environment_proxies=True).send("GET", named).body == b"by proxy"


class Tunnel(BaseHTTPRequestHandler):
    """A proxy that connects every client to ``target``."""

    target: tuple[str, int]
    heads: list[tuple[str, list[str]]]

    def do_CONNECT(self) -> None:
        self.heads.append((self.path, list(self.headers)))
        with socket.create_connection(self.target) as upstream:
            self.send_response(200)
            self.end_headers()
            while True:
                ready, _, _ = select([self.connection, upstream], [], [], 10)
                for each in ready:
                    data = each.recv(65536)
                    if not data:
                        return
                    (upstream if each is self.connection else self.connection).sendall(data)
                if not ready:
                    return

    def log_message(self, *_: object) -> None:
        """Write no access log."""


def test_https_through_a_proxy(servers: ExitStack, tmp_path: Path) -> None:
    """TLS is with the server, which the certificate proves, and the proxy sees no credentials."""
    authority, server = secured(servers, tmp_path)
    Tunnel.heads, Tunnel.target = [], ("127.0.0.1", int(server.host.partition(":")[2]))
    trusting = client_context({"ssl.truststore.certificates": authority.pem().decode()})
    with ThreadingHTTPServer(("127.0.0.1", 0), Tunnel) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.01,))
        thread.start()
        host = f"127.0.0.1:{proxy.server_port}"
        answer = HttpClient(SECONDS, trusting, proxy=host).send("GET", f"{server.url}{PATH}", CREDENTIALS)
        proxy.shutdown()
        thread.join()
    assert answer.body == b"content"
    assert server.asked[0][1]["Authorization"] == "Bearer secret"
    [(address, names)] = Tunnel.heads
    assert address == server.host
    assert "authorization" not in {name.lower() for name in names}


def test_a_proxy_that_refuses(server: Server) -> None:
    """The error has the proxy's status, and is not that of a server."""
    with pytest.raises(OSError, match="the proxy opens no tunnel: 501"):
        HttpClient(SECONDS, proxy=server.host).send("GET", "https://registry.invalid/x")


# -- TLS and errors ---------------------------------------------------------------------------------------------------


def secured(servers: ExitStack, folder: Path) -> tuple[Authority, Server]:
    authority = Authority()
    (folder / "server.pem").write_bytes(authority.issue("server").pem())
    return authority, document(servers, server_context({"ssl.keystore.location": str(folder / "server.pem")}))


def test_a_certificate_that_is_not_trusted(servers: ExitStack, tmp_path: Path) -> None:
    """Without a context the system's authorities are trusted; the error has OpenSSL's reason."""
    authority, server = secured(servers, tmp_path)
    trusting = client_context({"ssl.truststore.certificates": authority.pem().decode()})
    assert HttpClient(SECONDS, trusting).send("GET", f"{server.url}{PATH}").status == 200
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        HttpClient(SECONDS).send("GET", f"{server.url}{PATH}")
    assert "issuer certificate" in caught.value.verify_message or "self-signed" in caught.value.verify_message


def test_errors_are_those_of_a_socket() -> None:
    """Messages show the operating system's reason, and not how the library wraps it."""
    with pytest.raises(ConnectionRefusedError, match=r"^\[Errno 111\] Connection refused$"):
        HttpClient(SECONDS).send("GET", f"http://127.0.0.1:{closed_port()}")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "closed connection without response"),
        (b"nonsense\r\n\r\n", "the answer is not one of HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "the answer is not one of HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200, "the answer is not one of HTTP"),
    ],
    ids=["none", "no HTTP", "ends early", "too many headers"],
)
def test_damaged_answers_are_socket_errors(answer: bytes, message: str) -> None:
    """A caller handles one kind of error; half a document is never returned."""
    with answering(answer) as (url, _), pytest.raises(OSError, match=message):
        HttpClient(SECONDS).send("GET", url)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
def test_a_request_is_sent_once(method: str) -> None:
    """The server may have done what the request says before its connection ended."""
    with answering(b"") as (url, received):
        with pytest.raises(ConnectionResetError, match="closed connection without response"):
            HttpClient(SECONDS).send(method, url, body=None if method == "GET" else b"{}")
        with pytest.raises(ConnectionResetError):
            HttpClient(SECONDS).send("GET", f"{url}/next")
    assert [head.partition(b" HTTP")[0].decode() for head in received] == [f"{method} /", "GET /next"]


def test_large_headers_are_accepted(server: Server) -> None:
    """Proxies set cookies and policies of more than 8 KiB."""
    server.moved[PATH] = f"{server.url}/{'y' * 20_000}"
    assert HttpClient(SECONDS).send("GET", f"{server.url}{PATH}").status == 302
