"""Find the Java that runs Kafka, Connect, Ivy and Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from headrace_dev.versions import JAVA, JAVA_OF_SERVERS


class JavaError(RuntimeError):
    """There is no Java, or it is too old."""


def jvm_options(*, sustained: bool = False) -> tuple[str, ...]:
    """Return options of a server's JVM for a machine with few cores: serial garbage collector, C1 compiler only.

    That halves the CPU time of its start. ``sustained`` also enables the C2 compiler, for measurements.
    """
    compiler = () if sustained else ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
    return ("-XX:+UseSerialGC", "-XX:-UsePerfData", *compiler)


@cache
def java() -> str:
    """Return the path of a ``java`` of version 17 or newer: that of JAVA_HOME, else of PATH. Raises JavaError."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None or not Path(found).exists():
        raise JavaError(f"no java at {found or 'any place of PATH'}: install Java {JAVA} or set JAVA_HOME")
    banner = subprocess.run([found, "-version"], capture_output=True, text=True, check=True).stderr
    major = re.search(r'version "(\d+)', banner)
    if major is None or int(major[1]) < JAVA:
        raise JavaError(f"{found} is {banner.splitlines()[0]}: Java {JAVA} or newer is needed; set JAVA_HOME")
    return found


def java_home_of_servers() -> Path | None:
    """Return the home of a Java for Keycloak and Nessie: that of JAVA21_HOME, else a package's; None without one."""
    given = os.environ.get("JAVA21_HOME")
    homes = [Path(given)] if given else sorted(Path("/usr/lib/jvm").glob("*"))
    for home in homes:
        program = home / "bin" / "java"
        if program.exists():
            banner = subprocess.run([program, "-version"], capture_output=True, text=True, check=True).stderr
            found = re.search(r'version "(\d+)', banner)
            if found is not None and int(found[1]) >= JAVA_OF_SERVERS:
                return home
    return None
