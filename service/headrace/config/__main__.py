"""``python -m headrace.config [ROOT]``: write the documents that are made from the code into a source tree."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from headrace.config import chart_values, documentation


def made_files() -> dict[str, str]:
    """Every made file by its path in the source tree."""
    return {
        "docs/configuration.md": documentation.configuration(),
        "docs/errors.md": documentation.errors(),
        "docs/migration.md": documentation.migration(),
        "docs/states.md": documentation.states(),
        "helm/headrace/values.schema.json": json.dumps(chart_values.values_schema(), indent=2) + "\n",
    }


def main() -> None:
    """Write all of them below the folder that the command line names, or below the current one."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    for name, text in made_files().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
