"""The parts of the memory of Spark's JVM add up, and follow the operator's options."""

from __future__ import annotations

import pytest

from headrace.config.engine import EngineSettings
from headrace.core.model.errors import ConfigError
from headrace_connectors.lakehouse.lakehouse import SparkLakehouse
from headrace_connectors.lakehouse.spark_settings import JvmMemory, java_bytes

MEBIBYTE = 1024 * 1024


@pytest.mark.parametrize(
    ("available", "heap"), [(256, 1024), (3500, 1485), (7680, 3993), (100_000, 4096), (None, 4096)]
)
def test_the_heap_follows_from_the_memory_of_the_container(available: int | None, heap: int) -> None:
    """It gets 60 % of what the JVM's other parts leave, at least 1 GiB and at most 4 GiB."""
    planned = JvmMemory.plan(None, "", None if available is None else available * MEBIBYTE)
    assert planned.heap == heap * MEBIBYTE


def test_key_indexes_are_part_of_the_memory() -> None:
    """``write.index.memory.bytes`` is reported, limits the indexes, and is not available to the heap."""
    limits = EngineSettings(index_bytes=1000 * MEBIBYTE)
    lakehouse = SparkLakehouse("/w", {}, [], limits=limits, available=4500 * MEBIBYTE)
    assert (lakehouse.indexes.limit, lakehouse.memory()["key indexes"]) == (1000 * MEBIBYTE, 1000 * MEBIBYTE)
    assert lakehouse.memory()["heap"] == 1485 * MEBIBYTE


def test_the_operators_sizes_replace_the_planned_ones() -> None:
    """A size in the Java options counts in the sum, and is not given to the JVM a second time."""
    given = "-XX:MaxMetaspaceSize=1g -XX:MaxDirectMemorySize=1048576"
    planned = JvmMemory.plan("2g", given, 8192 * MEBIBYTE)
    assert planned == JvmMemory(2048 * MEBIBYTE, metaspace=1024 * MEBIBYTE, direct=MEBIBYTE)
    assert planned.options(given) == ["-XX:ReservedCodeCacheSize=192m"]
    assert sum(planned.parts().values()) == (2048 + 1024 + 1 + 192 + 192) * MEBIBYTE


@pytest.mark.parametrize(
    ("text", "option", "size"), [("2g", "x", 2 << 30), ("5", "spark.driver.memory", 5 << 20), ("5", "X", 5)]
)
def test_amounts_of_memory(text: str, option: str, size: int) -> None:
    """Spark reads a bare number as mebibytes, the JVM as bytes."""
    assert java_bytes(text, option) == size


def test_an_amount_that_is_none_is_refused() -> None:
    """The error names the option."""
    with pytest.raises(ConfigError, match=r"spark\.driver\.memory 'much'") as refused:
        JvmMemory.plan("much", "", None)
    assert refused.value.key == "spark.driver.memory"
