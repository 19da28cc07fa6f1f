"""The environment of Spark's processes: a name for their user, and the worker's variables without secrets.

Hadoop requires a user name, which an arbitrary user id of a container does not have. Other processes of the user can
read the variables of a process.

Tests: ``tests/unit/lakehouse/test_spark_jvm.py``, ``tests/unit/lakehouse/test_spark_process.py``.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from headrace.core.model.errors import ConfigError

_PASSWD = Path("/etc/passwd")
_WRAPPER = "libnss_wrapper.so"  # the dynamic linker finds it by this name

_PASSED = {
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "HOSTNAME"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    "GOOGLE_APPLICATION_CREDENTIALS",  # the path of a file
}
_PASSED_PREFIXES = (
    *("LC_", "LD_", "NSS_WRAPPER_", "JAVA_", "JDK_", "_JAVA_", "SPARK_", "PYSPARK_", "HADOOP_", "YARN_", "KRB5"),
    *("AWS_", "AZURE_", "KUBERNETES_", "SSL_CERT_"),
)
_SECRET = ("SECRET", "PASSWORD", "PASSWD", "TOKEN", "CREDENTIAL", "ACCESS_KEY")
_FILES = ("_FILE", "_PATH", "_DIR")  # AWS_WEB_IDENTITY_TOKEN_FILE names a file


def user_environment(uid: int, wrapper: str = _WRAPPER) -> Mapping[str, str]:
    """Return the variables with which child processes find a user name for ``uid``; none if the system has one.

    Raises ConfigError if nss_wrapper is not installed.
    """
    try:
        pwd.getpwuid(uid)
    except KeyError:
        folder = Path(tempfile.mkdtemp(prefix="headrace-user-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        home = os.environ.get("HOME") or str(folder)
        passwd = folder / "passwd"
        passwd.write_text(f"headrace:x:{uid}:{os.getgid()}::{home}:/usr/sbin/nologin\n{_PASSWD.read_text()}")
        variables = {
            "LD_PRELOAD": f"{wrapper} {os.environ.get('LD_PRELOAD', '')}".strip(),
            "NSS_WRAPPER_PASSWD": str(passwd),
            "NSS_WRAPPER_GROUP": "/etc/group",
        }
        lookup = subprocess.run(["getent", "passwd", str(uid)], env={**os.environ, **variables}, capture_output=True)
        if lookup.returncode == 0:
            return variables
        raise ConfigError(
            f"Spark: does not start: user id {uid} has no entry in {_PASSWD}, and Hadoop requires a user name; "
            f"add an entry, run the worker as another user, or install libnss-wrapper ({wrapper})"
        ) from None
    return {}


def environment(variables: Mapping[str, str], extra: Collection[str] = ()) -> dict[str, str]:
    """Return the variables that the JVM receives: known ones without secrets, and those in ``extra``."""
    passed = {}
    for name, value in variables.items():
        is_secret = any(word in name for word in _SECRET) and not name.endswith(_FILES)
        if name in extra or ((name in _PASSED or name.startswith(_PASSED_PREFIXES)) and not is_secret):
            passed[name] = value
    return passed
