"""Each example of ``config/security`` is a configuration of a worker, and starts where a broker has the mechanism."""

from __future__ import annotations

import importlib.util
from contextlib import nullcontext
from pathlib import Path

import pytest
from support.fix_secured_kafka import USER_PASSWORD, SecuredBroker
from support.servers.certificates import PASSWORD
from support.servers.token_endpoint import SECRET, token_endpoint

from headrace.core.model.errors import ConfigError
from headrace_app.command import worker_config
from headrace_connectors.kafka import KafkaFeedFactory
from headrace_connectors.kafka.stores import KafkaStores

pytestmark = [pytest.mark.stack, pytest.mark.anyio, pytest.mark.usefixtures("tls_closes")]

EXAMPLES = Path(__file__).parents[2] / "config" / "security"
LISTENERS = {
    "tls": "TLS",
    "mtls": "MTLS",
    "plain": "LOGIN",
    "scram": "LOGIN",
    "oauthbearer": "LOGIN",
    "token-file": "LOGIN",
}
EXTRAS = {"aws-msk-iam": ("aws_msk_iam_sasl_signer", "msk"), "gssapi": ("gssapi", "gssapi")}


def test_each_example_is_tested() -> None:
    """A new file needs an entry here."""
    assert {each.stem for each in EXAMPLES.iterdir()} == LISTENERS.keys() | EXTRAS.keys()


def _secrets(broker: SecuredBroker, folder: Path) -> None:
    """Write the files of the Secret that the examples name."""
    (folder / "ca.pem").write_bytes(broker.authority.pem())
    (folder / "client.p12").write_bytes(broker.clients.issue("worker").pkcs12())
    (folder / "token").write_text(broker.token())
    secrets = {"keystore": PASSWORD, "password": USER_PASSWORD, "secret": SECRET}
    (folder / "kafka.properties").write_text("".join(f"{key}={value}\n" for key, value in secrets.items()))


@pytest.mark.parametrize("name", LISTENERS)
async def test_an_example_starts(secured_kafka: SecuredBroker, tmp_path: Path, name: str) -> None:
    """Only addresses and the folder of the Secret differ from the file."""
    _secrets(secured_kafka, tmp_path)
    text = (EXAMPLES / f"{name}.properties").read_text()
    with token_endpoint(secured_kafka.token, tmp_path) if name == "oauthbearer" else nullcontext() as endpoint:
        if endpoint is not None:
            (tmp_path / "idp-ca.pem").write_bytes(endpoint.authority.pem())
            text = text.replace("https://idp.example.com/token", endpoint.url)
        text = text.replace("broker.example.com:9093", secured_kafka.kafka.address(LISTENERS[name]))
        properties = _properties(text.replace("/secrets", str(tmp_path)), tmp_path)
        KafkaFeedFactory(properties)
        await KafkaStores(properties).start()


@pytest.mark.parametrize("name", EXTRAS)
def test_an_example_of_an_extra_is_read(secured_kafka: SecuredBroker, tmp_path: Path, name: str) -> None:
    """With its package the worker accepts the file; without it, the error has the command that installs it."""
    _secrets(secured_kafka, tmp_path)
    text = (EXAMPLES / f"{name}.properties").read_text().replace("/secrets", str(tmp_path))
    properties = _properties(text, tmp_path)
    package, extra = EXTRAS[name]
    missing = importlib.util.find_spec(package) is None
    with pytest.raises(ConfigError, match=rf"headrace\[{extra}\]") if missing else nullcontext():
        KafkaStores(properties)


def _properties(text: str, folder: Path) -> dict[str, str]:
    """Return the properties that a worker has after it has read the file."""
    file = folder / "worker.properties"
    file.write_text(text)
    return dict(worker_config(file, distributed=True).complete_properties())
