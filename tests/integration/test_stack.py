"""The development stack: data survive restarts, and its servers end with their parent process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace_dev.connect import ConnectorError, debezium_postgres
from headrace_dev.postgres import Postgres
from headrace_dev.server import Server, wait_until
from headrace_dev.stack import Stack

pytestmark = pytest.mark.stack

PARENT = """
from headrace_dev.stack import Stack
with Stack("kafka", "postgres") as stack:
    print(stack.root, stack.kafka.server.pid, stack.postgres.server.pid, flush=True)
    input()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_survives_the_parent(number: signal.Signals, tmp_path: Path) -> None:
    """After kill -9 or Ctrl-C of the parent, its servers have ended and their folders are removed."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd=tmp_path,
    ) as parent:
        assert parent.stdout is not None
        root, *pids = parent.stdout.readline().decode().split()
        parent.send_signal(number)
        parent.wait(120)
    wait_until(lambda: not any(Path("/proc", pid).exists() for pid in pids), "end of the servers")
    wait_until(lambda: not Path(root).exists(), f"removal of {root}")


def test_what_a_server_prints_is_in_its_log(tmp_path: Path) -> None:
    """A server may print more than a pipe holds; it does not block."""
    (tmp_path / "talker").mkdir()
    talk = "import time; print('x' * 1_000_000); print('done', flush=True); time.sleep(600)"
    server = Server("talker", [sys.executable, "-c", talk], tmp_path / "talker")
    server.start(lambda: server.log_end(1) == "done", 20)
    server.kill()


def test_a_killed_postgres_keeps_its_data(stack_postgres: Postgres, unique: Callable[[str], str]) -> None:
    """Changes that were committed before kill -9 exist after the next start."""
    database = unique("kept")
    stack_postgres.create_database(database)
    stack_postgres.execute("CREATE TABLE t (id int); INSERT INTO t VALUES (1)", database)
    stack_postgres.kill()
    stack_postgres.start()
    with stack_postgres.connect(database) as connection:
        assert connection.execute("SELECT id FROM t").fetchall() == [(1,)]


def test_a_killed_broker_keeps_its_topics(unique: Callable[[str], str]) -> None:
    """A topic survives kill -9. The test starts its own broker, because others share the one of the session."""
    with Stack("kafka") as own:
        topic = unique("kept")
        own.kafka.create_topic(topic)
        own.kafka.kill()
        own.kafka.start()
        assert own.kafka.topics() == [topic]


def test_debezium_reads_the_database(stack: Stack, unique: Callable[[str], str]) -> None:
    """A connector that was created runs and publishes its snapshot; the error of one that cannot run has its cause."""
    database = unique("source")
    stack.postgres.create_database(database)
    stack.postgres.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)", database)
    stack.connect.put_connector(database, debezium_postgres(stack.postgres, database, database))
    wait_until(lambda: f"{database}.public.t" in stack.kafka.topics(), "topic of the table")
    stack.connect.delete_connector(database)
    with pytest.raises(ConnectorError, match="does not exist"):
        stack.connect.put_connector("wrong", debezium_postgres(stack.postgres, "no_such_database", "wrong"))
