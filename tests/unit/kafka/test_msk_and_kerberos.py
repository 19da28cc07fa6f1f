"""The mechanisms of the extras: what AWS's signer makes, and what is refused by name."""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import time
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest
from aiokafka.errors import KafkaError
from support.kafka.kafka_settings import settings_of

from headrace.core.model.errors import ConfigError
from headrace_connectors.kafka.connections import KerberosAuthenticator
from headrace_connectors.kafka.oauth import LoginError
from headrace_connectors.kafka.settings import client_arguments, consumer_settings

MSK = {
    "bootstrap.servers": "b-1.shop.x1y2z3.c4.kafka.eu-central-1.amazonaws.com:9098",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}
KERBEROS = {"bootstrap.servers": "broker:9092", "security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}
with_signer = pytest.mark.skipif(
    importlib.util.find_spec("aws_msk_iam_sasl_signer") is None, reason="needs the extra: pip install 'headrace[msk]'"
)


@pytest.fixture(autouse=True)
def no_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove AWS's settings of the machine, and its metadata service."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@with_signer
def test_a_token_is_a_signed_request_for_the_region_of_the_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """MSK receives a URL that is signed with the key of the environment, and never the secret."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-aws")
    arguments = client_arguments(MSK)
    assert arguments["sasl_mechanism"] == "OAUTHBEARER"
    text = asyncio.run(arguments["sasl_oauth_token_provider"].token())
    url = urlsplit(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    query = {name: values[0] for name, values in parse_qs(url.query).items()}
    assert url.hostname == "kafka.eu-central-1.amazonaws.com"
    assert query["Action"] == "kafka-cluster:Connect"
    assert query["X-Amz-Credential"].startswith("AKIDEXAMPLE/")
    assert "/eu-central-1/kafka-cluster/" in query["X-Amz-Credential"]
    assert query["X-Amz-Expires"] == "900"
    assert "secret-of-aws" not in url.geturl()
    token = arguments["sasl_oauth_token_provider"]._cache._token
    assert token.ends - time.time() == pytest.approx(900, abs=30)


@with_signer
def test_missing_aws_credentials_are_reported() -> None:
    """The error says how the worker gets credentials."""
    jaas = 'software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="absent";'
    provider = client_arguments({**MSK, "sasl.jaas.config": jaas})["sasl_oauth_token_provider"]
    with pytest.raises(LoginError, match="AWS credentials are missing") as caught:
        asyncio.run(provider.token())
    assert isinstance(caught.value.failure, ConfigError)


@with_signer
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"bootstrap.servers": "broker:9098"}, "bootstrap.servers: contains no AWS region"),
        ({"sasl.jaas.config": 'x required awsRolArn="a";'}, "awsRolArn is not an option of the IAMLoginModule"),
    ],
)
def test_a_wrong_property_for_msk_is_named(change: dict[str, str], text: str) -> None:
    """The error names the property."""
    with pytest.raises(ConfigError, match=text):
        client_arguments({**MSK, **change})


@pytest.mark.skipif(importlib.util.find_spec("aws_msk_iam_sasl_signer") is not None, reason="the extra is installed")
def test_msk_without_its_extra_is_refused() -> None:
    """The error has the command that installs it."""
    with pytest.raises(ConfigError, match=r"AWS_MSK_IAM needs a package .* pip install 'headrace\[msk\]'"):
        client_arguments(MSK)


@pytest.mark.skipif(importlib.util.find_spec("gssapi") is not None, reason="the extra is installed")
def test_kerberos_without_its_extra_is_refused() -> None:
    """The error has the command that installs it."""
    with pytest.raises(ConfigError, match=r"GSSAPI needs a package .* pip install 'headrace\[gssapi\]'"):
        client_arguments(KERBEROS)


def test_tokens_of_the_workers_aws_identity_stay_in_aws() -> None:
    """A token is valid at each MSK cluster, so a connector cannot send it to a broker of its own."""
    own = {key: value for key, value in MSK.items() if key != "bootstrap.servers"} | {"bootstrap.servers": "evil:9098"}
    settings = settings_of({"topics": "t", **{f"consumer.override.{key}": value for key, value in own.items()}})
    with pytest.raises(ConfigError, match="are not sent to brokers that are not of Amazon MSK"):
        consumer_settings({"bootstrap.servers": "broker:9092"}, "shop", 0, settings)


async def _expired(_: bytes | None) -> None:
    raise ValueError("Major (851968): Unspecified GSS failure.\nMinor: Ticket expired")


def test_an_expired_ticket_does_not_end_the_tasks_of_a_client() -> None:
    """The Kerberos library's error is one that aiokafka repeats the connection for, with what to do."""
    authenticator = KerberosAuthenticator(SimpleNamespace(step=_expired), "kafka@broker")
    with pytest.raises(KafkaError, match=r"Kerberos: no login at kafka@broker: .* Ticket expired; get a ticket"):
        asyncio.run(authenticator.step(None))
