"""``python -m headrace.config [ROOT]``: write the documents that are made from the code into a source tree."""

from __future__ import annotations

import json

from headrace.config import chart_values, documentation
from headrace.config.made_files import write


def made_files() -> dict[str, str]:
    """Every made file by its path in the source tree."""
    return {
        "docs/configuration.md": documentation.configuration(),
        "docs/errors.md": documentation.errors(),
        "docs/migration.md": documentation.migration(),
        "docs/states.md": documentation.states(),
        "helm/headrace/values.schema.json": json.dumps(chart_values.values_schema(), indent=2) + "\n",
    }


if __name__ == "__main__":
    write("headrace.config", made_files())
