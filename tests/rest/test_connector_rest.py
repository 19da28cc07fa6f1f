"""A connector paused for a repair: the requests to the worker, and the state of the connector at the end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from headrace.runtime.verify.connector_rest import ConnectorRest
from headrace.runtime.verify.table_verifier import Clock


class Worker(ThreadingHTTPServer):
    """Answers as a worker does; its task is paused one status request after the pause."""

    def __init__(self, connector: str, state: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.path = f"/connectors/{connector}/"
        self.states = [state]
        self.asked: list[str] = []

    def answer(self, method: str, path: str) -> tuple[int, bytes]:
        verb = path.removeprefix(self.path)
        if verb == "status":
            state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            return 200, json.dumps({"connector": {"state": state}, "tasks": [{"state": state}]}).encode()
        self.asked.append(f"{method} {verb}")
        self.states = ["RUNNING", "PAUSED"] if verb == "pause" else ["RUNNING"]
        return 202, b""


class _Handler(BaseHTTPRequestHandler):
    server: Worker

    def do_GET(self) -> None:
        self._do("GET")

    def do_PUT(self) -> None:
        self._do("PUT")

    def _do(self, method: str) -> None:
        status, body = self.server.answer(method, self.path)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def worker(request: pytest.FixtureRequest) -> Iterator[Worker]:
    """A worker whose connector has the state that the test names."""
    with Worker("our%20shop", request.param) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def rest(port: int) -> ConnectorRest:
    return ConnectorRest(f"http://127.0.0.1:{port}", "our shop", Clock(lambda: 0.0, lambda seconds: None))


@pytest.mark.parametrize("worker", ["RUNNING"], indirect=True)
def test_a_running_connector_is_paused_and_resumed(worker: Worker) -> None:
    """The block begins when no task runs any more."""
    with rest(worker.server_port).paused():
        assert worker.asked == ["PUT pause"]
        assert worker.states == ["PAUSED"]
    assert worker.asked == ["PUT pause", "PUT resume"]


@pytest.mark.parametrize("worker", ["RUNNING"], indirect=True)
def test_it_is_resumed_after_an_error(worker: Worker) -> None:
    """The connector is resumed before an error of the block is raised."""
    with pytest.raises(KeyError), rest(worker.server_port).paused():
        raise KeyError
    assert worker.asked == ["PUT pause", "PUT resume"]


@pytest.mark.parametrize("worker", ["PAUSED", "STOPPED"], indirect=True)
def test_one_that_does_not_run_is_left_as_it_is(worker: Worker) -> None:
    """A connector that was paused or stopped before is not resumed."""
    with rest(worker.server_port).paused():
        pass
    assert worker.asked == []


def test_without_an_answer_the_block_runs() -> None:
    """The block runs without an answer: the worker may run under another address, or not at all."""
    with Worker("shop", "RUNNING") as server:
        port = server.server_port
    with rest(port).paused():
        reached = True
    assert reached
