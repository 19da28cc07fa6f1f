"""``python -m headrace_dev.image_jars VARIANT FOLDER``: the jars of a variant of the image, for the Dockerfile."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from headrace_dev.jars import resolve
from headrace_dev.versions import IMAGE_VARIANTS


def copy_jars(variant: str, target: Path) -> None:
    """Copy the pinned jars of a variant into a new folder. Raises FetchError, or SystemExit for an unknown variant."""
    if variant not in IMAGE_VARIANTS:
        raise SystemExit(f"VARIANT: {variant} is not a variant of the image; use one of {', '.join(IMAGE_VARIANTS)}")
    target.mkdir(parents=True)
    for bundle in IMAGE_VARIANTS[variant]:
        for jar in resolve(bundle):
            shutil.copy(jar, target)


if __name__ == "__main__":
    copy_jars(sys.argv[1], Path(sys.argv[2]))
