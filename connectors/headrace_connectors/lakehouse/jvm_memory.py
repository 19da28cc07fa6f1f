"""The memory of Spark's JVM, part by part: together with Python's it must fit the container.

Without limits of its own a JVM takes as much direct memory as heap, and metaspace without end, so that the kernel kills
the container instead of an error with a cause.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

from headrace.core.model.errors import ConfigError

_MEBIBYTE = 1024 * 1024
_LEAST_HEAP = 1024 * _MEBIBYTE
_MOST_HEAP = 4096 * _MEBIBYTE
"""More heap only helps with batches larger than the default ones (``batch.max.bytes``)."""
_HEAP_SHARE = 0.6
"""Of what Python and the JVM's other parts leave. The rest is for changes that wait or are written."""
_SIZES = {"metaspace": "MaxMetaspaceSize", "direct": "MaxDirectMemorySize", "code_cache": "ReservedCodeCacheSize"}


@dataclass(frozen=True, slots=True)
class JvmMemory:
    """Bytes of the parts. All but ``other`` (threads, collector, libraries) are limits that the JVM keeps."""

    heap: int
    metaspace: int = 384 * _MEBIBYTE
    direct: int = 256 * _MEBIBYTE
    code_cache: int = 192 * _MEBIBYTE
    other: int = 192 * _MEBIBYTE

    @classmethod
    def planned(cls, heap: str | None, java_options: str, available: int | None) -> JvmMemory:
        """Return the parts for a heap such as ``4g`` and for the sizes in ``java_options``.

        Without ``heap`` it follows from the ``available`` bytes, which are the JVM's and those of changes. Raises
        ConfigError for a size that is not one.
        """
        given = {part: java_bytes(size, option) for part, option, size in _given(java_options)}
        parts = cls(0, **given)
        if heap is not None:
            return cls(java_bytes(heap, "spark.driver.memory"), **given)
        if available is None:
            return cls(_MOST_HEAP, **given)
        chosen = int((available - sum(astuple(parts))) * _HEAP_SHARE) // _MEBIBYTE * _MEBIBYTE
        return cls(min(max(chosen, _LEAST_HEAP), _MOST_HEAP), **given)

    def options(self, java_options: str) -> Sequence[str]:
        """Return the JVM's options for the limits that ``java_options`` does not contain."""
        given = {part for part, _, _ in _given(java_options)}
        sizes: Mapping[str, int] = {part: getattr(self, part) for part in _SIZES if part not in given}
        return [f"-XX:{_SIZES[part]}={size // _MEBIBYTE}m" for part, size in sizes.items()]

    def parts(self) -> Mapping[str, int]:
        """Return the bytes by the name of the part, for the log."""
        return {
            "heap": self.heap,
            "metaspace": self.metaspace,
            "direct memory": self.direct,
            "code cache": self.code_cache,
            "threads and collector": self.other,
        }


def _given(java_options: str) -> Sequence[tuple[str, str, str]]:
    found = [(part, option, re.findall(rf"-XX:{option}=(\S+)", java_options)) for part, option in _SIZES.items()]
    return [(part, option, sizes[-1]) for part, option, sizes in found if sizes]


def java_bytes(text: str, option: str) -> int:
    """Return the bytes that Java means by ``4g`` or ``512m``. Raises ConfigError for another text."""
    match = re.fullmatch(r"(\d+)([kmgt]?)b?", text.strip().lower())
    if match is None:
        raise ConfigError(f"{option} {text!r} is not an amount of memory such as 4g or 512m", option)
    number, unit = match.groups()
    # Spark reads a bare number as mebibytes, the JVM as bytes.
    power: int = " kmgt".index(unit) if unit else (2 if option.startswith("spark.") else 0)
    return int(number) * (1 << 10 * power)
