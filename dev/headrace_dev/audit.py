"""``python -m headrace_dev.audit``: known vulnerabilities of the image's Python packages and jars.

OSV-Scanner asks osv.dev about the SBOM of this environment. ``osv-scanner.toml`` lists advisories that do not apply:
each with the reason why Headrace does not reach the vulnerable code, and a date after which it is asked again. With
``OSV_SCANNER_LOCAL_DB_CACHE_DIRECTORY`` it reads osv.dev's databases in that folder instead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from headrace_dev.go_tools import BuildError, tool
from headrace_dev.jars import resolve
from headrace_dev.java import java
from headrace_dev.sbom import as_json, bill_of_materials
from headrace_dev.versions import IMAGE_VARIANTS, OSV_SCANNER

NOT_APPLICABLE = Path(__file__).resolve().parents[2] / "osv-scanner.toml"


def contents() -> str:
    """Return the SBOM of the installed packages and of the jars of all variants of the image."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    with tempfile.TemporaryDirectory() as folder:
        for bundle in {bundle for variant in IMAGE_VARIANTS.values() for bundle in variant}:
            for jar in resolve(bundle):
                shutil.copy(jar, folder)
        return as_json(bill_of_materials(Path(spec.origin).parents[1], Path(folder), Path(java()).resolve().parents[1]))


def main(not_applicable: Path = NOT_APPLICABLE) -> int:
    """Print the findings; return 1 if there are any, and another status if they could not be looked up."""
    try:
        scanner = tool("osv-scanner", "github.com/google/osv-scanner/v2/cmd/osv-scanner", OSV_SCANNER)
    except BuildError as error:
        print(f"audit: {error}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        sbom = Path(folder, "headrace.cdx.json")
        sbom.write_text(contents(), encoding="utf-8")
        command = [str(scanner), "scan", "source", f"--lockfile={sbom}", f"--config={not_applicable}"]
        offline = ["--offline"] if "OSV_SCANNER_LOCAL_DB_CACHE_DIRECTORY" in os.environ else []
        return subprocess.run([*command, *offline], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
