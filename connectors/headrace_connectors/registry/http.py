"""GET requests to a registry, with its errors in our words.

The standard library's client: three kinds of requests, each answered once and then remembered, need no other
(``docs/why.md``).
"""

from __future__ import annotations

import base64
import json
import logging
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from headrace.config.registry_converters import TlsOptions
from headrace.core.connect.typed_options import parsed
from headrace.core.model.errors import BadRecord, ConfigError, Retriable

log = logging.getLogger(__name__)

_SECONDS = 10.0
_LARGEST = 16 * 1024 * 1024
_REFUSED = (401, 403)
_NOT_FOUND = 404
_UNKNOWN = (40401, 40402, 40403)


@dataclass(frozen=True, slots=True)
class Answer:
    """A body and its content type."""

    body: bytes
    content_type: str

    def json(self) -> Any:
        """The body as JSON. Raises Retriable for anything else, which a proxy may have sent."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise Retriable("the schema registry's answer is no JSON") from error


@dataclass(frozen=True, slots=True)
class RegistryClient:
    """Asks the addresses of one registry in turn. ``option`` names the property that has them."""

    option: str
    urls: Sequence[str]
    headers: Mapping[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    proxy: str = ""
    """``host:port`` of an HTTP proxy for all addresses."""

    def get(self, path: str, what: str) -> Answer:
        """Return the answer for ``path``. Raises BadRecord if it does not exist, Retriable or ConfigError."""
        failed: Retriable | None = None
        for url in self.urls:
            try:
                return self._get(url, path, what)
            except Retriable as error:
                failed = error
        raise failed or ConfigError(f"{self.option} is empty", self.option)

    def _get(self, url: str, path: str, what: str) -> Answer:
        bare, credentials = without_credentials(url)
        headers = {"Accept": "*/*", **self.headers}
        if credentials:
            headers.setdefault("Authorization", basic(credentials))
        request = urllib.request.Request(f"{bare.rstrip('/')}/{path}", headers=headers)  # noqa: S310 - scheme is checked
        if self.proxy:
            request.set_proxy(self.proxy, request.type)
        try:
            opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=self.tls), _Redirects())
            with opener.open(request, timeout=_SECONDS) as response:
                return Answer(response.read(_LARGEST), response.headers.get("Content-Type", ""))
        except urllib.error.HTTPError as error:
            raise self._meant(error, bare, what) from error
        except ssl.SSLCertVerificationError as error:
            raise ConfigError(
                f"the certificate of {bare} is not trusted: {error.verify_message}", self.option
            ) from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                message = f"the certificate of {bare} is not trusted: {reason.verify_message}"
                raise ConfigError(message, self.option) from error
            raise Retriable(f"the schema registry at {bare} does not answer: {reason}") from error

    def _meant(self, error: urllib.error.HTTPError, url: str, what: str) -> Exception:
        with error:
            body = error.read(4096)
        if error.code in _REFUSED:
            return ConfigError(f"the schema registry at {url} refuses the connector ({error.code})", self.option)
        if error.code == _NOT_FOUND and _is_registrys(body):
            return BadRecord(f"the schema registry has no {what}")
        if error.code == _NOT_FOUND:
            return ConfigError(f"there is no schema registry at {url} (404, but not for a schema)", self.option)
        return Retriable(f"the schema registry at {url} answers {error.code}")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect to another server without the credentials, which are for the configured one."""

    def redirect_request(self, req: urllib.request.Request, *answer: Any) -> urllib.request.Request | None:
        """The request to the new address."""
        followed = super().redirect_request(req, *answer)
        if followed is not None and (followed.type, followed.host) != (req.type, req.host):
            followed.headers = {"Accept": "*/*"}
        return followed


def _is_registrys(body: bytes) -> bool:
    """Whether it is the schema that was not found, and not the path: Confluent's codes, or Apicurio's exceptions."""
    try:
        document = json.loads(body)
        code, name = int(document.get("error_code", 0)), str(document.get("name", ""))
    except (ValueError, TypeError, AttributeError):
        return False
    return code in _UNKNOWN or (name.endswith("NotFoundException") and name != "NotFoundException")


def addresses(option: str, given: Sequence[str]) -> list[str]:
    """The URLs of an option. Raises ConfigError for one that is none."""
    urls = [each for each in given if each]
    if not urls:
        raise ConfigError(f'Missing required configuration "{option}" which has no default value.', option)
    for each in urls:
        if urlsplit(each).scheme not in ("http", "https"):
            raise ConfigError(f"{option}: a URL begins with http:// or https://", option)
    return urls


def without_credentials(url: str) -> tuple[str, str]:
    """A URL, and the user and password that stood in it."""
    parts = urlsplit(url)
    credentials, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=host)), unquote(credentials) if at else ""


def basic(credentials: str) -> str:
    """The header for ``user:password``."""
    return f"Basic {base64.b64encode(credentials.encode()).decode()}"


def tls_context(options: Mapping[str, str], prefix: str) -> ssl.SSLContext | None:
    """Create the TLS context from options with Kafka's names and PEM files. Raises ConfigError."""
    given = parsed(TlsOptions, options, prefix)
    if given == TlsOptions():
        return None
    for store, store_type in (("truststore", given.truststore_type), ("keystore", given.keystore_type)):
        if store_type.upper() != "PEM":
            key = f"{prefix}{store}.type"
            raise ConfigError(f"{key}={store_type} is a Java key store: convert it to PEM and set {key}=PEM", key)
    try:
        context = ssl.create_default_context(cafile=given.truststore_location, cadata=given.truststore_certificates)
        if given.keystore_location:
            context.load_cert_chain(given.keystore_location, password=given.key_password)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"the certificates of {prefix}* cannot be read: {error}", f"{prefix}truststore.location"
        ) from error
    if not given.endpoint_identification:
        context.check_hostname = False
    return context
