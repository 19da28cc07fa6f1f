"""The certificates that Spark's JVMs trust, in a file that Java reads without a password.

Java reads neither PEM nor, without a password among the process arguments, a store that has one. So the worker reads
``jvm.ssl.truststore.location`` and writes its certificates, which are public, into a store of its own.
"""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path

from cryptography.hazmat.primitives.serialization import NoEncryption, pkcs12

from headrace.config.tls import read_trust_store


class TrustStore:
    """The certificates of the file ``location``, read once. Raises ConfigError if it cannot be read.

    ``path`` is the file for Java, which exists between ``write`` and ``remove``.
    """

    def __init__(self, location: str, password: str | None) -> None:
        found = read_trust_store("jvm.ssl.truststore.location", location, password)
        # Java requires a different name for each.
        named = [pkcs12.PKCS12Certificate(each, b"%d" % number) for number, each in enumerate(found)]
        self._content = pkcs12.serialize_java_truststore(named, NoEncryption())
        self.path = Path(tempfile.gettempdir(), f"headrace-truststore-{uuid.uuid4().hex}.p12")

    def write(self) -> None:
        """Write the file, if it does not exist."""
        if not self.path.exists():
            self.path.touch(mode=0o600)
            self.path.write_bytes(self._content)

    def remove(self) -> None:
        """Remove the file. Idempotent."""
        self.path.unlink(missing_ok=True)
