"""The scanner of ``make audit``, with a database of invented advisories instead of osv.dev."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from headrace_dev.audit import NOT_APPLICABLE, main

pytestmark = [pytest.mark.production, pytest.mark.long, pytest.mark.timeout(900)]

ADVISORIES = {"Maven": ("GHSA-0000-0000-0001", "org.apache.zookeeper:zookeeper"), "PyPI": ("PYSEC-0000-1", "uvicorn")}


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An advisory for all versions of a jar of Spark, and one of a Python package."""
    for ecosystem, (name, package) in ADVISORIES.items():
        every_version = {"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}
        affected = {"package": {"ecosystem": ecosystem, "name": package}, "ranges": [every_version]}
        advisory = {"schema_version": "1.6.0", "id": name, "modified": "2026-01-01T00:00:00Z", "affected": [affected]}
        folder = tmp_path / "osv-scalibr" / ecosystem
        folder.mkdir(parents=True)
        with zipfile.ZipFile(folder / "all.zip", "w") as archive:
            archive.writestr(f"{name}.json", json.dumps(advisory))
    monkeypatch.setenv("OSV_SCANNER_LOCAL_DB_CACHE_DIRECTORY", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("database")
def test_packages_and_jars_are_looked_up(capfd: pytest.CaptureFixture[str]) -> None:
    """The scanner knows each by the name that the SBOM gives it."""
    assert main() == 1
    output = capfd.readouterr().out
    assert all(name in output for name, _ in ADVISORIES.values())


def test_advisories_that_do_not_apply_are_left_out(database: Path) -> None:
    """Each is listed with a reason; the list of the repository has the same form."""
    listed = [f'[[IgnoredVulns]]\nid = "{name}"\nreason = "invented"\n' for name, _ in ADVISORIES.values()]
    own = database / NOT_APPLICABLE.name
    own.write_text("".join(listed))
    assert main(own) == 0
