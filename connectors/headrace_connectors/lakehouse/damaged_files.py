"""Recognizes in an error of Spark that a file of a table is damaged or missing, and finds its name. Pure.

Hadoop, Iceberg, Parquet, Avro, Jackson and Delta have no common exception for this. A trace usually contains the name
in one of its causes. Iceberg's readers of Parquet files and of deletion vectors omit it, as does Delta's reader of
history, and Spark names the data file for a deletion vector of Delta; ``TableFormat.damaged_file`` finds these.

A message contains the name, and never the text of a cause: that of a JSON parser quotes a Delta log, whose statistics
are cell values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.core.model.errors import DamagedFile, HeadraceError
from headrace.core.model.events import OWN_PREFIX

WAYS_OUT = (
    "restore the file, roll the table back, or fill the table anew: runbook "
    '"A file of a table is damaged" (docs/runbooks.md); then restart the table'
)
_LEDGER = f"{OWN_PREFIX}tombstones/"
STAGED = "headrace_stage_"
"""In the name of a file that contains a batch and belongs to no table."""
DAMAGED = "is damaged or cut"
MISSING = "does not exist, although the table consists of it"

_NAMED = (
    r"Failed to (?:open|read|fetch) file: (?P<{0}>[^\n]+)",
    r"Failed to open input stream for file: (?P<{0}>[^\n]+)",
    r"Location does not exist: (?P<{0}>[^\n]+)",
    r"No such file or directory: (?P<{0}>[^\n]+)",
    r"Checksum error: (?P<{0}>[^\n]+) at \d+ exp:",
    r"Encountered error while reading file (?P<{0}>[^\n]+?)\. +(?:SQLSTATE|File does not exist)",
    r"FileNotFoundException: (?:File )?(?P<{0}>[^\n]+?) (?:does not exist|\(No such file or directory\))",
    r"DELTA_TRUNCATED_TRANSACTION_LOG\] (?P<{0}>[^\n]+?): Unable to reconstruct",
    r"RuntimeException: (?P<{0}>\S*/[^\n]*) is not a Parquet file",
)
_FILE = re.compile("|".join(pattern.format(f"file{number}") for number, pattern in enumerate(_NAMED)))
_METADATA_GONE = re.compile(r"Metadata file for version (\d+) is missing under ([^\n]+)")
_GONE = re.compile(
    r"^(?:Caused by)?: java\.io\.FileNotFoundException|iceberg\.exceptions\.NotFoundException|NoSuchKeyException|"
    r"NoSuchFileException|DELTA_TRUNCATED_TRANSACTION_LOG|FAILED_READ_FILE\.FILE_NOT_EXIST",
    re.MULTILINE,
)
_UNREADABLE = re.compile(
    r"\b(?:\w+\.)+(ChecksumException|JsonEOFException|JsonParseException|MismatchedInputException|"
    r"InvalidAvroMagicException|AvroRuntimeException|EOFException|ParquetDecodingException|TProtocolException|"
    r"ZstdIOException|DataFormatException|ZipException)\b|is not a Parquet file|MALFORMED_RECORD_IN_PARSING|"
    r"FAILED_READ_FILE\.(?:NO_HINT|CANNOT_READ_FILE_FOOTER)|FAILED_TO_UNCOMPRESS|MalformedInputException|"
    r"can not read class org\.apache\.parquet|Invalid (?:bitmap|deletion vector|CRC|magic)"
)
_READERS = re.compile(
    r"\bat org\.apache\.(?:iceberg\.(?:data|parquet|avro|puffin|deletes|shaded\.org\.apache\.parquet)|"
    r"iceberg\.spark\.source\.\w*Reader|iceberg\.TableMetadataParser|parquet\.hadoop|spark\.sql\.delta)\b"
)
_VECTOR_OF_DELTA = re.compile(r"\bat org\.apache\.spark\.sql\.delta\.storage\.dv\.|DELTA_DELETION_VECTOR_\w+")
_GAP = "DELTA_VERSIONS_NOT_CONTIGUOUS"
_PARTITION = re.compile(r"(?<=/)([^/=]+)=[^/]*(?=/)")


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with ``file``, None if the error does not name it."""

    file: str | None
    fault: str

    def message(self, table: str, cause: str) -> str:
        """Return the message for an operator; ``cause`` is the class of the exception."""
        if self.file is None:
            return (
                f"{table}: a file of the table {self.fault} ({cause}); Spark's lines in the worker's standard error "
                f"may name it ('Error reading file(s)'); {WAYS_OUT}"
            )
        part = "the table's ledger of deletes" if _LEDGER in self.file else "the table"
        return f"{table}: the file {self.file} of {part} {self.fault} ({cause}); {WAYS_OUT}"


def damage(trace: str) -> Damage | None:
    """Return the damage that a trace of Java shows, or None. An error of the network or of access shows none."""
    gone = _METADATA_GONE.search(trace)
    if gone:
        return Damage(without_values(f"{gone[2].strip()}/v{gone[1]}.metadata.json"), MISSING)
    if _GAP in trace:
        return Damage(None, "is missing in the middle of its log")
    fault = MISSING if _GONE.search(trace) else DAMAGED if _UNREADABLE.search(trace) else None
    if fault is None:
        return None
    file = named_file(trace)
    if _VECTOR_OF_DELTA.search(trace):
        file = file if file is not None and file.endswith(".bin") else None
        return Damage(file, fault)
    if file is not None and STAGED in file:
        return None
    # An answer of a catalog may end early as well, or be no JSON.
    return Damage(file, fault) if file is not None or _READERS.search(trace) else None


def named_file(trace: str) -> str | None:
    """Return the last file that a trace names, that of its innermost cause."""
    found = [next(filter(None, match.groups())) for match in _FILE.finditer(trace)]
    return without_values(found[-1]) if found else None


def without_values(path: str) -> str:
    """Replace the values in the folders of partitions (``name=value``), which are values of cells."""
    return path if _LEDGER in path else _PARTITION.sub(r"\1=…", path)


@contextmanager
def naming_the_file(table: str, find: Callable[[], str | None]) -> Iterator[None]:
    """Complete a DamagedFile of the block that names no file with the one that ``find`` returns."""
    try:
        yield
    except DamagedFile as error:
        if error.file is not None:
            raise
        try:
            file = find()
        except DamagedFile:
            raise
        except HeadraceError:
            file = None  # the error of the block is the cause
        if file is None:
            raise
        file = without_values(file)
        raise DamagedFile(Damage(file, DAMAGED).message(table, "found by its size or its end"), file) from error
