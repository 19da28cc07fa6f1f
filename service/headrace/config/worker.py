"""``WorkerConfig``: what becomes of a ``worker.properties``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from headrace import __version__
from headrace.config.connector import CONNECTOR_OPTIONS
from headrace.config.converter import KNOWN_CONVERTERS, converter_class, with_types
from headrace.config.directory_options import DirectorySettings
from headrace.config.engine import EngineSettings
from headrace.config.keys_without_effect import (
    CLIENT_SECURITY,
    PASS_THROUGH,
    TLS,
    WITHOUT_EFFECT,
    of_a_created_topic,
    without_effect,
)
from headrace.config.plugin_classes import converter_problems, version_problems
from headrace.config.rest_options import (
    HTTPS,
    BasicAuthSettings,
    Listener,
    OAuthSettings,
    RestAccessSettings,
    advertised,
    parsed_listeners,
)
from headrace.config.tls import TlsSettings
from headrace.config.values import NO_SECRETS, OwnSecrets, trim_values
from headrace.config.worker_options import (
    ADMIN_TLS,
    LISTENER_TLS,
    OAUTH_TLS,
    WORKER_OPTIONS,
    AlertSettings,
    DefaultConverters,
    IdentitySettings,
    LakeSettings,
    LogSettings,
    MetricsSettings,
    OverrideSettings,
    RestSettings,
    StorageSettings,
    TimingSettings,
    TrackingSettings,
)
from headrace.core.connect.typed_options import below, definition, parse_options, suggestion
from headrace.core.model.errors import ConfigError

_OF_REST = ("listeners", "admin.listeners", "rest.", "access.control.", "response.http.")
_OF_CONVERTERS = ("key.", "value.", "header.")
_CONVERTERS = tuple(f"{side}.converter" for side in KNOWN_CONVERTERS)
_DISTRIBUTED = ("group.id", "config.storage.topic", "status.storage.topic")
_TLS_NAMES = frozenset((*definition(TlsSettings).names(), *TLS))
_NAMES = (*WORKER_OPTIONS.names(), *WITHOUT_EFFECT)
_OF_A_CONNECTOR = "It is an option of connectors: move it to the connector's configuration."
_CLIENTS = ("consumer.", "producer.", "admin.")
_FREE_PREFIXES = (*PASS_THROUGH, *CLIENT_SECURITY, "config.providers")


class WorkerConfig:
    """A worker's parsed options, group by group, and what follows from them."""

    __slots__ = (
        "_given",
        "access",
        "admin_listeners",
        "alerts",
        "basic_auth",
        "consumer",
        "converters",
        "directory",
        "distributed",
        "engine",
        "identity",
        "ignored",
        "lake",
        "listeners",
        "metrics",
        "oauth",
        "overrides",
        "own_secrets",
        "rest",
        "storage",
        "timing",
        "tracking",
    )

    def __init__(
        self, properties: Mapping[str, str], *, distributed: bool = True, own_secrets: OwnSecrets = NO_SECRETS
    ) -> None:
        """Check ``properties``. Raises ConfigError that lists every problem at once.

        ``own_secrets`` are those that connectors must not read.
        """
        problems = _problems(properties, distributed)
        if problems:
            raise ConfigError("The worker configuration is invalid:\n" + "\n".join(f"  {line}" for line in problems))
        self._given = trim_values(properties)
        self.consumer: Mapping[str, str] = below(self._given, "consumer.")
        self.identity = parse_options(IdentitySettings, properties)
        self.storage = parse_options(StorageSettings, properties)
        self.rest = parse_options(RestSettings, properties)
        self.directory = parse_options(DirectorySettings, properties)
        self.converters = parse_options(DefaultConverters, properties)
        self.lake = parse_options(LakeSettings, properties)
        self.engine = parse_options(EngineSettings, properties)
        self.timing = parse_options(TimingSettings, properties)
        self.tracking = parse_options(TrackingSettings, properties)
        self.metrics = parse_options(MetricsSettings, properties)
        self.alerts = parse_options(AlertSettings, properties)
        self.overrides = parse_options(OverrideSettings, properties)
        self.distributed = distributed
        self.own_secrets = own_secrets
        self.ignored = {name: reason for name in properties if (reason := without_effect(name)) is not None}
        self.listeners: Sequence[Listener] = parsed_listeners("listeners", self.rest.listeners)
        if not self.listeners:
            raise ConfigError("listeners: there is no address; set http://host:port or https://host:port", "listeners")
        self.admin_listeners = parsed_listeners("admin.listeners", self.rest.admin_listeners or ())
        self.basic_auth = parse_options(BasicAuthSettings, properties)
        self.oauth = parse_options(OAuthSettings, properties)
        self.access = parse_options(RestAccessSettings, properties)
        advertised(self.listeners, self.rest.advertised_listener)  # raises for one that does not exist
        if self.basic_auth.enabled and self.basic_auth.file is None:
            name = "rest.basic.auth.file"
            raise ConfigError(
                f"{name}: is not set; set it to the file that the JAAS entry KafkaConnect of Kafka Connect names", name
            )
        if self.oauth.issuer is not None and not self.oauth.audience:
            name = "rest.oauth.audience"
            raise ConfigError(f"{name}: is not set; set the audience (aud) of tokens for this API", name)

    @property
    def group_id(self) -> str | None:
        """The Connect cluster's group; None in standalone mode."""
        return (self.identity.group_id or "") if self.distributed else None

    @property
    def serves_loggers(self) -> bool:
        return self.rest.admin_listeners is None

    @property
    def listener(self) -> Listener:
        """The listener that other workers use."""
        return advertised(self.listeners, self.rest.advertised_listener)

    @property
    def advertises_https(self) -> bool:
        """Whether other workers reach this one over https."""
        return self.listener.scheme == HTTPS

    def tls(self, prefix: str) -> tuple[Mapping[str, str], str]:
        """Return the options of TLS and their prefix: ``prefix`` if there is any key below it, else ``ssl.``.

        The two do not mix, as in Kafka Connect.
        """
        begin = prefix.removesuffix("ssl.")
        return self._given, prefix if any(name.startswith(begin) for name in self._given) else "ssl."

    @property
    def names_warehouse(self) -> bool:
        """Whether the warehouse is another place than the default one, which is a folder of wherever a worker runs."""
        return "warehouse" in self._given

    @property
    def converter_properties(self) -> dict[str, str]:
        """The worker's converters and their options, by full names: what connectors inherit."""
        given = {name: value for name, value in self._given.items() if name.startswith(_OF_CONVERTERS)}
        return given | {f"{side}.converter": getattr(self.converters, side) for side in KNOWN_CONVERTERS}

    @property
    def provider_properties(self) -> dict[str, str]:
        """The config providers and their parameters, by full names."""
        return {name: value for name, value in self._given.items() if name.startswith("config.providers")}

    def complete_properties(self) -> dict[str, str]:
        """What was given, and every default as text: for plug-ins, which have no defaults of their own.

        Options of the REST API are not for plug-ins. ``admin.listeners`` would be a property of their admin clients.
        """
        defaults = {key.name: key.default_text for key in WORKER_OPTIONS.keys}
        complete = {name: value for name, value in defaults.items() if value is not None} | self._given
        return {name: value for name, value in complete.items() if not name.startswith(_OF_REST)}

    def spark_properties(self) -> dict[str, str]:
        return {name: value for name, value in self._given.items() if name.startswith("spark.")}


def is_known(name: str) -> bool:
    """Whether ``name`` may stand in a worker configuration."""
    listed = name in WORKER_OPTIONS or without_effect(name) is not None
    for prefix in (LISTENER_TLS, ADMIN_TLS, OAUTH_TLS):
        if name.startswith(prefix.removesuffix("ssl.")) and (prefix != OAUTH_TLS or name.startswith(prefix)):
            return listed or name.removeprefix(prefix) in _TLS_NAMES
    return listed or of_a_created_topic(name) or name.startswith(_FREE_PREFIXES)


def option_of_worker(name: str) -> str | None:
    """Return a sentence about an option of a worker that a connector has; None for any other name."""
    if (reason := without_effect(name)) is not None:
        return f"It is an option of Kafka Connect's worker, and without effect in Headrace: {reason}. Remove it."
    if not is_known(name) or name.startswith(_OF_CONVERTERS):  # connectors have converters as well
        return None
    moved = "It is an option of the worker: move it to the worker file, where it applies to all connectors"
    if name.startswith(_CLIENTS):
        client, key = name.split(".", 1)
        misspelt, _, behind = key.partition(".")
        if behind and get_close_matches("override", [misspelt], cutoff=0.8):
            return f"Did you mean '{client}.override.{behind}'?"
        return f"{moved}, or name it {client}.override.{key}."
    if name in definition(IdentitySettings) or name.startswith(CLIENT_SECURITY):
        return f"{moved}, or name it consumer.override.{name} for the connector's consumers."
    return f"{moved}."


def _problems(properties: Mapping[str, str], distributed: bool) -> list[str]:
    problems = []
    for name in properties:
        if not is_known(name):
            meant = _OF_A_CONNECTOR if name in CONNECTOR_OPTIONS else suggestion(name, _NAMES)
            problems.append(f"{name}: unknown option. {meant}")

    infos = list(WORKER_OPTIONS.validate(properties))
    defaults = {option: WORKER_OPTIONS[option].default_text or "" for option in _CONVERTERS}
    for side, converters in KNOWN_CONVERTERS.items():  # connectors inherit these
        option = f"{side}.converter"
        full_name = converter_class(properties.get(option, defaults[option]).strip(), converters)
        if full_name is not None:
            infos += converters[full_name].with_prefix(f"{option}.").validate(with_types(properties))
    problems += [message for info in infos for message in info.value.errors]
    problems += [message for _, message in converter_problems(properties)]
    problems += dict.fromkeys(message for _, message in version_problems(properties, defaults, __version__))

    required = ["bootstrap.servers", *(_DISTRIBUTED if distributed else ())]
    missing = [name for name in required if not properties.get(name, "").strip()]
    return problems + [f'Missing required configuration "{name}" which has no default value.' for name in missing]


def log_format(properties: Mapping[str, str]) -> str:
    """The form of the log, before ``properties`` are checked as a whole; the default if the value is invalid."""
    try:
        return parse_options(LogSettings, properties).format
    except ConfigError:
        return LogSettings().format


def select_known(properties: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Split keys from the environment into those that are options and the names of the rest.

    A pod's environment is not the operator's alone (Kubernetes adds ``CONNECT_SERVICE_HOST`` for a service called
    connect), so what is unknown there is reported instead of refused.
    """
    options = {name: value for name, value in properties.items() if is_known(name)}
    return options, sorted(set(properties) - set(options))
