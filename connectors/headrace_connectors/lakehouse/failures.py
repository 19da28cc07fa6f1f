"""Translates errors of Spark and the table format: which can be retried, and which need an operator.

Spark's messages may quote a statement, and so a key. Messages contain only the error's class and condition, the file
that could not be read, and for an unknown error the line of code that raised it.

Hadoop, Iceberg, Parquet, Avro, Jackson and Delta have no common exception for a file that is damaged or missing. A
trace usually contains its name in one of its causes. Iceberg's readers of Parquet files and of deletion vectors omit
it, as does Delta's reader of history, and Spark names the data file for a deletion vector of Delta;
``TableFormat.damaged_file`` finds these. A message never contains the text of a cause: that of a JSON parser quotes a
Delta log, whose statistics are cell values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.core.model.errors import DamagedFile, EngineFailed, EngineOutOfMemory, Fatal, HeadraceError, Retriable
from headrace.core.model.events import OWN_PREFIX

WAYS_OUT = (
    "restore the file, roll the table back, or fill the table anew: runbook "
    '"A file of a table is damaged" (docs/runbooks.md); then restart the table'
)
_LEDGER = f"{OWN_PREFIX}tombstones/"
STAGED = "headrace_stage_"
"""In the name of a file that contains a batch and belongs to no table."""
NO_TABLE = "the table does not exist, or the storage does not show it"
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
    r"iceberg\.spark\.source\.\w*Reader|iceberg\.hadoop\.HadoopStreams|iceberg\.TableMetadataParser|parquet\.hadoop|spark\.sql\.delta)\b"
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
    if gone := _METADATA_GONE.search(trace):
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
    files = [next(filter(None, match.groups())) for match in _FILE.finditer(trace)]
    return without_values(files[-1]) if files else None


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


class NotThere(Retriable):
    """The table of a statement does not exist, or the storage does not show it at present."""


class Conflict(Retriable):
    """Another writer committed to the table in between: run the statement again."""


class Declined(Exception):
    """Only Spark can do this: write a batch, or read rows. The message says why; nothing was written."""


_KNOWN: tuple[tuple[str, type[HeadraceError], str], ...] = (
    (r"No space left on device", Retriable,
     "no space left on the device of the warehouse, or on that of temporary files; free some, the batch is kept"),
    (r"Disk quota exceeded", Retriable, "the warehouse's disk quota is used up; raise it, the batch is kept"),
    (r"Read-only file system|Permission denied|Operation not permitted|AccessDenied|Mkdirs failed|Not a directory",
     Retriable,
     "the warehouse cannot be written; check its path and the rights of the worker's user"),
    (r"CommitStateUnknownException", Conflict, "the result of the commit is unknown"),
    (r"CommitFailedException|ValidationException: (?!Metadata file)|ConcurrentModification|DELTA_CONCURRENT_\w+|"
     r"io\.delta\.exceptions\.\w*(Concurrent|Changed)\w*|DELTA_(METADATA|PROTOCOL)_CHANGED|"
     # Hadoop's S3 client, if a file is replaced while it is read.
     r"RemoteFileChangedException", Conflict,
     "another writer changed the table in between"),
    # A catalog that shows the newest snapshot alone (Nessie) hides that of the statement after another commit.
    (r"Snapshot \d+ is not an ancestor of \d+", Conflict, "another writer changed the table in between"),
    (r"TABLE_OR_VIEW_ALREADY_EXISTS|AlreadyExistsException|DELTA_TABLE_ALREADY_EXISTS", Conflict,
     "another writer created the table in between"),
    (r"MERGE_CARDINALITY_VIOLATION", Fatal,
     "several changes of one batch meet the same row; the key is not unique, correct primary.key.fields"),
    (r"OutOfMemoryError|Java heap space", EngineOutOfMemory,
     "Spark ran out of memory; raise spark.driver.memory (or spark.executor.memory) or lower batch.max.bytes"),
    (r"DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION", Fatal,
     "the table's location contains other files, perhaps of another format; move them away"),
    (r"DELTA_INVALID_CHARACTERS_IN_COLUMN_NAME", Fatal,
     "a column's name has a space or one of ,;{}()= in it, which requires "
     "table.properties.delta.columnMapping.mode=name; recreate the table with it, or rename the column"),
    (r"TABLE_OR_VIEW_NOT_FOUND|NoSuchTableException|DELTA_MISSING_DELTA_TABLE|DELTA_TABLE_ONLY_OPERATION|"
     r"DELTA_TABLE_NOT_FOUND|PATH_NOT_FOUND", NotThere, NO_TABLE),
    (r"UncheckedSQLException|PSQLException|SQL(Transient|Recoverable)\w*Exception", Retriable,
     "the catalog's database refused a statement; at the first start two workers may both make its tables"),
    (r"PKIX path|unable to find valid certification path|SSLPeerUnverified|CertificateExpired|"
     r"No (subject alternative|name matching)|trustAnchors parameter", Retriable,
     "the certificate of the storage or the catalog is not trusted, has ended, or is that of another name; renew it, "
     "set jvm.ssl.truststore.location, or correct the address"),
    (r"Unsupported or unrecognized SSL message", Retriable,
     "the storage or the catalog does not speak TLS; set its address with http, or enable TLS there"),
    (r"Unable to load credentials", Retriable,
     "there are no credentials for the storage: set keys in the worker file, or give the pod a role (and AWS_REGION)"),
    (r"ExpiredToken|InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|TokenRefreshRequired|RequestExpired|"
     r"NotAuthorizedException|ForbiddenException|\(Service: \w+, Status Code: 40[13]",
     Retriable,
     "the storage or the catalog does not accept the credentials; renew or correct them, and check what they allow"),
    (r"Connection refused|UnknownHost|SocketTimeout|SocketException|ServiceUnavailable|Connect to .* failed|"
     r"SdkClientException|NoHttpResponse|Connection reset|ServiceFailureException",
     Retriable, "the storage or the catalog does not answer"),
)  # fmt: skip
_REFUSED = r"S3Exception|AwsServiceException|SdkServiceException|RESTException"
_FAILED = r"IOException|UncheckedIO"
_HTTP_STATUS = re.compile(r"Status Code: (\d{3})")
_FRAME = re.compile(r"^\s+at \S*?([\w$]+\.[\w$<>]+\(\w+\.(?:java|scala):\d+\))", re.MULTILINE)
_JAVA_CLASS = re.compile(r"\b(?:[a-z_]\w*\.)+([A-Z]\w*(?:Exception|Error))\b")


@contextmanager
def translate_errors(table: str) -> Iterator[None]:
    """Raise errors of Spark in the block as those of ``core/model/errors.py``, with the name of ``table``.

    Declined passes as it is.
    """
    try:
        yield
    except (HeadraceError, Declined):
        raise
    except Exception as error:
        try:
            failure = translate(table, error)
        except Exception as lost:  # the JVM has ended, which has the exception's message and trace
            failure = translate(table, lost)
        raise failure from error


def translate(table: str, error: BaseException) -> HeadraceError:
    """Return the error to raise for ``error``. An unknown error is Fatal, because it is unsafe to continue."""
    text = str(error)
    if lost_connection(error):
        return EngineFailed(f"{table}: Spark's JVM has ended, and is started again ({type(error).__name__})")
    for pattern, error_class, meaning in _KNOWN:
        if re.search(pattern, text):
            return error_class(f"{table}: {meaning} ({_cause(error, text)})")
    trace = f"{text}\n{getattr(error, '_stackTrace', '')}"  # PySpark's own exceptions keep the trace apart
    if (fault := damage(trace)) is not None:
        return DamagedFile(fault.message(table, _cause(error, trace)), fault.file)
    if re.search(_REFUSED, text):
        status = _HTTP_STATUS.search(text)
        answer = f", HTTP {status[1]}" if status else ""
        return Retriable(
            f"{table}: the storage or the catalog refused a request; check it, the operation is repeated "
            f"({_cause(error, text)}{answer})"
        )
    if re.search(_FAILED, text):
        file = named_file(trace)
        what = f"reading or writing {file}" if file else "reading or writing the warehouse"
        return Retriable(
            f"{table}: {what} failed; check its storage, the operation is repeated ({_cause(error, text)})"
        )
    innermost = trace.rpartition("Caused by: ")[2]
    frame = _FRAME.search(innermost) or _FRAME.search(trace)
    where = f" at {frame[1]}" if frame else ""  # Class.method(File.java:1)
    return Fatal(
        f"{table}: Spark rejected the statement: {_cause(error, text)}{where}; errors of its "
        "tasks are in the worker's standard error, in lines with 'ERROR spark'"
    )


def lost_connection(error: BaseException) -> bool:
    """Return whether the connection to the JVM has ended. py4j raises its base class then, without a Java trace."""
    name = type(error).__name__
    return (
        isinstance(error, ConnectionError)
        or name == "Py4JNetworkError"
        or (name == "Py4JError" and "Trace:" not in str(error))
    )


def condition(error: BaseException) -> str | None:
    """Spark's error condition, or None."""
    name: str | None = getattr(error, "getCondition", lambda: None)()
    return name


def _cause(error: BaseException, text: str) -> str:
    """The innermost cause: Spark's error condition, or the last Java exception of the trace."""
    if name := condition(error):
        return name
    classes = _JAVA_CLASS.findall(text)
    return str(classes[-1]) if classes else type(error).__name__
