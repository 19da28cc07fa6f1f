"""Translates errors of Spark and the table format: which can be retried, and which need an operator.

Spark's messages may quote a statement, and so a key. Messages contain only the error's class and condition, the file
that could not be read, and for an unknown error the line of code that raised it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.core.model.errors import DamagedFile, EngineFailed, EngineOutOfMemory, Fatal, HeadraceError, Retriable
from headrace_connectors.lakehouse.damaged_files import damage, named_file


class NotThere(Retriable):
    """The table of a statement does not exist, or the storage does not show it at present."""


class Conflict(Retriable):
    """Another writer committed to the table in between: run the statement again."""


_KNOWN: tuple[tuple[str, type[HeadraceError], str], ...] = (
    (r"No space left on device", Retriable, "no space left on the warehouse's device; free some, the batch is kept"),
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
     r"PATH_NOT_FOUND", NotThere, "the table does not exist, or the storage does not show it"),
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
def translated(table: str) -> Iterator[None]:
    """Raise errors of Spark in the block as those of ``core/model/errors.py``, with the name of ``table``."""
    try:
        yield
    except HeadraceError:
        raise
    except Exception as error:
        raise translate(table, error) from error


def translate(table: str, error: BaseException) -> HeadraceError:
    """Return the error to raise for ``error``. An unknown error is Fatal, because it is unsafe to continue."""
    text = str(error)
    if lost_connection(error):
        return EngineFailed(f"{table}: Spark's JVM has ended, and is started again ({type(error).__name__})")
    for pattern, error_class, meaning in _KNOWN:
        if re.search(pattern, text):
            return error_class(f"{table}: {meaning} ({_cause(error, text)})")
    trace = f"{text}\n{getattr(error, '_stackTrace', '')}"  # PySpark's own exceptions keep the trace apart
    found = damage(trace)
    if found is not None:
        return DamagedFile(found.message(table, _cause(error, trace)), found.file)
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
    line = _line_of_code(trace)
    return Fatal(
        f"{table}: Spark rejected the statement: {_cause(error, text)}{f' at {line}' if line else ''}; errors of its "
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
    name = condition(error)
    if name:
        return name
    named = _JAVA_CLASS.findall(text)
    return str(named[-1]) if named else type(error).__name__


def _line_of_code(trace: str) -> str | None:
    """The line of code that raised the innermost exception, as ``Class.method(File.java:1)``."""
    innermost = trace.rpartition("Caused by: ")[2]
    found = _FRAME.search(innermost) or _FRAME.search(trace)
    return None if found is None else found[1]
