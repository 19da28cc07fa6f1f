"""Delta tables in an object store: what a worker writes to, a reader, and another writer of a table's log."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from production.catalog_example import example, secrets
from support.lake.delta_tables import delta_rows

from headrace_dev import jars
from headrace_dev.conditional_put import create_object
from headrace_dev.object_store import ACCESS_KEY, REGION, SECRET_KEY, ObjectStore

_FOLDER = "delta"
_S3A = "spark.hadoop.fs.s3a"


@dataclass(frozen=True, slots=True)
class DeltaLake:
    """A warehouse in the bucket of ``store``; ``unused`` is a folder that stays empty."""

    store: ObjectStore
    unused: Path

    @property
    def properties(self) -> Mapping[str, str]:
        """The keys of a worker: the example ``s3-delta``."""
        keys = secrets(self.store.folder / "secrets", id=ACCESS_KEY, key=SECRET_KEY)
        changes = {
            "warehouse": f"s3a://{self.store.bucket}/{_FOLDER}",
            "spark.sql.catalog.lake.warehouse": str(self.unused),
            "headrace.jars.extra": str(jars.folder("lakehouse-delta-aws")),
            f"{_S3A}.endpoint": self.store.endpoint,
            f"{_S3A}.endpoint.region": REGION,
            f"{_S3A}.access.key": keys["id"],
            f"{_S3A}.secret.key": keys["key"],
        }
        return example("s3-delta", changes, {})

    def rows(self, namespace: str, name: str) -> Sequence[dict[str, Any]]:
        """The data columns of every row of a table; none while it does not exist."""
        if not self.log(namespace, name):
            return []
        settings = self.store.reader_settings()
        options = {
            "AWS_ENDPOINT_URL": settings["s3.endpoint"],
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
            "AWS_ALLOW_HTTP": "true",
        }
        table = DeltaTable(f"s3://{self.store.bucket}/{_FOLDER}/{namespace}/{name}", storage_options=options)
        found = delta_rows(table)
        names = [column for column in found.column_names if not column.startswith("__headrace_")]
        rows: list[dict[str, Any]] = found.select(names).to_pylist()
        return rows

    def races_lost(self, namespace: str, name: str) -> int:
        """How many commits of the worker followed a version that it had not read: another writer was faster."""
        count = 0
        for entry in self.log(namespace, name):
            version = int(entry.rpartition("/")[2].removesuffix(".json"))
            actions = map(json.loads, self.store.read(entry).splitlines())
            infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
            count += any(info.get("readVersion", version - 1) < version - 1 for info in infos)
        return count

    def log(self, namespace: str, name: str) -> Sequence[str]:
        """The URIs of the entries of a table's log, oldest first."""
        entries = self.store.objects(f"{_FOLDER}/{namespace}/{name}/_delta_log/*.json")
        return sorted(entry for entry in entries if entry.rpartition("/")[2].removesuffix(".json").isdigit())


class OtherWriter:
    """A writer of a table's log in another process than the worker: it commits again and again, without changing rows.

    It sees its own next version and creates the entry only if there is none. Nothing delays its requests. ``written``
    are the marks of its commits, ``lost`` counts the times that the worker had been faster.
    """

    def __init__(self, lake: DeltaLake, namespace: str, name: str) -> None:
        self.written: list[str] = []
        self.lost = 0
        self._lake, self._table = lake, (namespace, name)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="other-writer", daemon=True)

    def start(self) -> None:
        """Begin to commit."""
        self._thread.start()

    def stop(self) -> None:
        """Commit no more."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(1.0):
            last = self._lake.log(*self._table)[-1]
            folder, _, entry = last.rpartition("/")
            version = int(entry.removesuffix(".json")) + 1
            mark = uuid.uuid4().hex
            commit = {"commitInfo": {"timestamp": 0, "operation": "OTHER", "operationParameters": {}, "mark": mark}}
            url = f"{self._lake.store.direct_endpoint}/{folder.removeprefix('s3://')}/{version:020}.json"
            if create_object(url, json.dumps(commit).encode() + b"\n", ACCESS_KEY, SECRET_KEY, REGION):
                self.written.append(mark)
            else:
                self.lost += 1
