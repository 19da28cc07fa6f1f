"""A PostgreSQL with logical decoding, on 127.0.0.1 only (``stack.md`` section 4).

Debian's server if it is installed, because it brings the contrib extensions; else the binaries of PyPI's pgserver,
which need no root. The superuser ``postgres`` needs no password. All others do.
PostgreSQL refuses to run as root: then it runs as ``postgres`` or ``nobody``.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from headrace_dev.server import LOOPBACK, Account, Server, free_ports, wait_until

SUPERUSER = "postgres"
_DEBIAN = Path("/usr/lib/postgresql")
_HOST_RULES = f"""\
host all {SUPERUSER} {LOOPBACK}/32 trust
host replication {SUPERUSER} {LOOPBACK}/32 trust
host all all {LOOPBACK}/32 scram-sha-256
"""


class Postgres:
    """A server with its own data folder; ``stop``, ``kill`` and ``start`` keep the data.

    With ``primary`` it is a standby of that server, which must run when this one starts for the first time.
    """

    def __init__(self, root: Path, name: str = "postgres", primary: Postgres | None = None) -> None:
        [self.port] = free_ports(1)
        self._primary = primary
        self._account = _account()
        self._folder = root / name
        self._folder.mkdir(mode=0o755)
        self._binaries = _binaries(self._folder)
        command = [str(self._binaries / "postgres"), "-D", str(self._data)]
        # SIGINT is PostgreSQL's "fast" shutdown: it does not wait for clients.
        self.server = Server(name, command, self._folder, account=self._account, stop_signal=signal.SIGINT)

    def start(self) -> None:
        """Start and wait until the server answers. The first start creates the cluster."""
        if not self._data.exists():
            self._create() if self._primary is None else self._copy(self._primary)
        self.server.start(self._answers)

    def stop(self) -> None:
        """Shut down in fast mode; the data stay."""
        self.server.stop()

    def kill(self) -> None:
        """``kill -9``; the next start recovers from the log."""
        self.server.kill()

    @property
    def has_contrib(self) -> bool:
        """Whether the contrib extensions (hstore, citext, ltree…) can be created here."""
        return _DEBIAN in self._binaries.parents and (_contrib_of(self._binaries) / "hstore.control").exists()

    def dsn(self, database: str = "postgres", user: str = SUPERUSER) -> str:
        """Return the connection string of a database of this server for libpq."""
        return f"host={LOOPBACK} port={self.port} user={user} dbname={database}"

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
        """Return an autocommit connection of the superuser."""
        return psycopg.connect(self.dsn(database), autocommit=True, connect_timeout=5)

    def create_database(self, name: str) -> None:
        """Create an empty database."""
        with self.connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))

    def dump(self, database: str, file: Path) -> None:
        """Write a backup of a database (``pg_dump``)."""
        self._run("pg_dump", "-Fc", "-d", self.dsn(database), "-f", str(file))

    def restore(self, database: str, file: Path) -> None:
        """Create a database from a backup (``pg_restore``)."""
        self.create_database(database)
        self._run("pg_restore", "-d", self.dsn(database), str(file))

    def execute(self, script: LiteralString, database: str = "postgres") -> None:
        """Run a script of statements over an autocommit connection."""
        with self.connect(database) as connection:
            connection.execute(script)

    def use_certificate(self, certificate: bytes, key: bytes, authority: bytes = b"") -> None:
        """Accept TLS connections with a certificate and its key, in PEM. ``authority`` signs those of clients."""
        for name, content in (("server.crt", certificate), ("server.key", key), ("clients.crt", authority)):
            file = self._data / name
            file.write_bytes(content)
            file.chmod(0o600)
            if self._account:
                os.chown(file, self._account.user, self._account.group)
        self.reload({"ssl": "on", "ssl_ca_file": "'clients.crt'" if authority else "''"})

    def reload(self, settings: Mapping[str, str], host_rules: str = "") -> None:
        """Change settings and, if given, the rules of ``pg_hba.conf``. Return when new connections have them."""
        before = self._load_time()
        if host_rules:
            (self._data / "pg_hba.conf").write_text(host_rules)
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{key} = {value}\n" for key, value in settings.items())
        self.execute("SELECT pg_reload_conf()")
        wait_until(lambda: self._load_time() != before, "change of PostgreSQL's configuration", 10)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run([str(self._binaries / program), *arguments], check=True, capture_output=True)

    def _load_time(self) -> Any:
        with self.connect() as connection:
            return connection.execute("SELECT pg_conf_load_time()").fetchone()

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def _create(self) -> None:
        if self._account:
            os.chown(self._folder, self._account.user, self._account.group)
        initdb = [self._binaries / "initdb", "-D", self._data, "-U", SUPERUSER, "-A", "trust", "-E", "UTF8"]
        _run_as(self._account, [*map(str, initdb), "--no-locale", "--no-sync"], self._folder)
        (self._data / "pg_hba.conf").write_text(_HOST_RULES)
        settings = _settings(self.port)
        if self.has_contrib:
            settings["shared_preload_libraries"] = "'pg_stat_statements'"
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{key} = {value}\n" for key, value in settings.items())

    def _copy(self, primary: Postgres) -> None:
        """Copy the primary physically, and follow it by streaming replication."""
        if self._account:
            os.chown(self._folder, self._account.user, self._account.group)
        backup = [self._binaries / "pg_basebackup", "-D", self._data, "-d", primary.dsn(), "-R", "-X", "stream"]
        _run_as(self._account, [*map(str, backup), "--checkpoint=fast", "--no-sync"], self._folder)
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(f"port = {self.port}\n")


def _settings(port: int) -> dict[str, str]:
    return {
        "listen_addresses": f"'{LOOPBACK}'",
        "port": str(port),
        "unix_socket_directories": "''",
        "wal_level": "logical",
        "max_replication_slots": "20",
        "max_wal_senders": "20",
        "timezone": "'UTC'",
        # The data must survive a kill of the process, but not a crash of the machine.
        "fsync": "off",
        "full_page_writes": "off",
    }


def _account() -> Account | None:
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = names.get("postgres") or names["nobody"]
    return Account(entry.pw_uid, entry.pw_gid)


def _binaries(folder: Path) -> Path:
    """The folder with ``initdb`` and ``postgres``: the newest of Debian's, else pgserver's."""
    versions = [path for path in _DEBIAN.glob("*/bin") if (path / "initdb").exists()]
    if versions:
        return max(versions, key=lambda path: int(path.parent.name))
    return _pgserver_binaries(folder)


def _pgserver_binaries(folder: Path) -> Path:
    spec = importlib.util.find_spec("pgserver")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    if os.geteuid() != 0:
        return package / "pginstall" / "bin"
    # Another account may not be able to look into root's folders, so it gets a copy with the libraries beside it.
    copy = folder / "pgserver"
    shutil.copytree(package / "pginstall", copy / "pginstall", ignore=shutil.ignore_patterns("include", "*.a"))
    shutil.copytree(package.parent / "pgserver.libs", folder / "pgserver.libs")
    return copy / "pginstall" / "bin"


def _contrib_of(binaries: Path) -> Path:
    return Path("/usr/share/postgresql") / binaries.parent.name / "extension"


def _run_as(account: Account | None, command: Sequence[str], folder: Path) -> None:
    user, group = (account.user, account.group) if account else (None, None)
    groups: list[int] | None = [] if account else None
    subprocess.run(command, check=True, capture_output=True, cwd=folder, user=user, group=group, extra_groups=groups)
