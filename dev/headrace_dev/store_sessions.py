"""Credentials of an object store that end after seconds: a row of sessions, each of which ends a little later.

versitygw's own STS issues none for less than 15 minutes, so its sessions are written before its identity server starts.
The server itself refuses a session that has ended.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace_dev.server import LOOPBACK, Server, accepts, free_ports

_SECONDS = 900
_ROLE, _ROLE_ID = "lake", "AROAHEADRACETEST0001"
_ACCOUNT = "000000000000"
ROLE_ARN = f"arn:aws:iam::{_ACCOUNT}:role/{_ROLE}"
_EVERYTHING = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "arn:aws:s3:::*"}],
}


@dataclass(frozen=True, slots=True)
class Session:
    """Temporary credentials; ``expires`` in seconds since the epoch."""

    access_key: str
    secret_key: str
    token: str
    expires: float


class StoreSessions:
    """An identity server with sessions for 15 minutes from now; one of them ends every ``step`` seconds."""

    def __init__(
        self, folder: Path, program: Path, root: Sequence[str], step: float = 5.0, seconds: float = 900
    ) -> None:
        began = time.time()
        self._sessions = [_session(began + step * (each + 1)) for each in range(int(_SECONDS / step))]
        identities = folder / "identities"
        identities.mkdir(mode=0o700)
        (identities / "iam.json").write_text(json.dumps(_identities(self._sessions)))
        [self._port] = free_ports(1)
        self._socket = folder / "identities.socket"
        listen = ["--port", f"{LOOPBACK}:{self._port}"]
        private = ["--dir", str(identities), "--private-ports", str(self._socket)]
        self.server = Server("object-store-identities", [str(program), *root, *listen, "iam", *private], folder)

    def start(self) -> None:
        """Start the server."""
        self.server.start(lambda: accepts(self._port) and self._socket.exists())

    @property
    def gateway_options(self) -> Sequence[str]:
        """What a server of the objects needs to accept the sessions."""
        return ["--iam-standalone-endpoint", str(self._socket), "--iam-cache-disable"]

    def issue(self, seconds: float) -> Session:
        """Return the first session that lasts at least ``seconds``. Raises StopIteration if none does."""
        return next(each for each in self._sessions if each.expires >= time.time() + seconds)


def _session(expires: float) -> Session:
    # The prefix marks temporary keys.
    return Session(f"ASIA{secrets.token_hex(8).upper()}", secrets.token_hex(20), secrets.token_hex(40), expires)


def _identities(sessions: Sequence[Session]) -> dict[str, Any]:
    """The content of versitygw's file of identities."""
    now = _time(time.time())
    policy = {
        "PolicyName": "lake",
        "PolicyDocument": json.dumps(_EVERYTHING),
        "CreateDate": now,
        "UpdateDate": now,
    }
    role = {
        "Path": "/",
        "RoleName": _ROLE,
        "RoleID": _ROLE_ID,
        "Arn": ROLE_ARN,
        "CreateDate": now,
        "AssumeRolePolicyDocument": "{}",
        "Policies": {"inline": [policy]},
    }
    return {
        "roles": {_ROLE: role},
        "sessions": {
            each.access_key: {
                "accessKeyId": each.access_key,
                "secretAccessKey": each.secret_key,
                "sessionToken": each.token,
                "roleArn": ROLE_ARN,
                "roleName": _ROLE,
                "roleId": _ROLE_ID,
                "roleSessionName": "headrace",
                "createDate": now,
                "expiration": _time(each.expires),
            }
            for each in sessions
        },
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
