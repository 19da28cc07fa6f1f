"""The object store of the lanes: credentials that end, and objects that are created once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow.fs import S3FileSystem

from headrace_dev.conditional_put import create_object
from headrace_dev.object_store import ACCESS_KEY, REGION, SECRET_KEY, ObjectStore
from headrace_dev.server import wait_until
from headrace_dev.store_sessions import Session

pytestmark = [pytest.mark.production, pytest.mark.long]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    """A running object store, which accepts temporary credentials."""
    store = ObjectStore(tmp_path, sessions=True)
    store.start()
    yield store
    store.stop()


def test_a_session_is_refused_after_its_end(store: ObjectStore) -> None:
    """The server itself refuses it, so that a lane with such credentials proves that they were renewed."""
    assert store.sessions is not None
    session = store.sessions.issue(1)
    write(store, session)
    wait_until(lambda: time.time() > session.expires, "end of the session", 10)
    with pytest.raises(OSError, match="INVALID_ACCESS_KEY_ID"):
        write(store, session)


def test_an_object_is_created_once(store: ObjectStore) -> None:
    """The second writer of a key learns that it was too late, and the first one's object stays."""
    for content, created in ((b"first", True), (b"second", False)):
        url = f"{store.endpoint}/{store.bucket}/folder/object.json"
        assert create_object(url, content, ACCESS_KEY, SECRET_KEY, REGION) is created
    [uri] = store.objects("**/*.json")
    assert store.read(uri) == "first"


def write(store: ObjectStore, session: Session) -> None:
    """Write an object with temporary credentials."""
    files = S3FileSystem(
        access_key=session.access_key,
        secret_key=session.secret_key,
        session_token=session.token,
        endpoint_override=store.endpoint,
        region=REGION,
    )
    with files.open_output_stream(f"{store.bucket}/object") as stream:
        stream.write(b"content")
