"""Tables in the volume of a pod, read from the node's disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyiceberg.io import InputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import StaticTable

from headrace_dev.demo.compare import data_rows, newest_metadata
from headrace_dev.kubernetes import Release

_MOUNT = "/var/lib/headrace"


class NodeFiles(PyArrowFileIO):
    """Opens files by the paths that they have in the pod; the property ``node`` is where its volume is mounted here."""

    def new_input(self, location: str) -> InputFile:
        """Return the file on the node."""
        return super().new_input(location.removeprefix("file:").replace(_MOUNT, self.properties["node"], 1))


def pod_rows(release: Release, table: str, namespace: str = "headrace") -> Sequence[dict[str, Any]]:
    """Return the data columns of every row of a table in the emptyDir of the only worker."""
    [pod] = release.pods()
    node = release.volume(pod, "warehouse")
    metadata = newest_metadata(node / "warehouse" / namespace / table)
    if metadata is None:
        return []
    inside = str(metadata).replace(str(node), _MOUNT, 1)
    files = f"{NodeFiles.__module__}.{NodeFiles.__name__}"
    return data_rows(StaticTable.from_metadata(inside, {"py-io-impl": files, "node": str(node)}))
