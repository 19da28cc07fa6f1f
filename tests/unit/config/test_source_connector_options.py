"""``source.connector.*``: the address is that of a connector, and contains no credentials."""

from __future__ import annotations

import pytest

from headrace.config.source_connector import SourceConnectorAddress, source_connector_address
from headrace.config.validation import WorkerDefaults, validate
from headrace.core.model.errors import ConfigError

SHOP = {"name": "shop", "connector.class": "LakehouseSink", "topics": "shop.public.orders"}
DEFAULTS = WorkerDefaults({"key.converter": "JsonConverter", "value.converter": "JsonConverter"}, "1.0")


def errors(**options: str) -> list[str]:
    given = {f"source.connector.{name}": value for name, value in options.items()}
    return validate({**SHOP, **given}, DEFAULTS).errors()


def test_an_address_has_its_parts() -> None:
    """A proxy may add a prefix, and a name may be quoted."""
    address = source_connector_address("https://connect:8083/kafka/connectors/shop%20source")
    assert address == SourceConnectorAddress("https://connect:8083/kafka", "shop source")
    assert errors(url="http://connect:8083/connectors/shop/") == []


@pytest.mark.parametrize(
    "url",
    [
        "http://connect:8083",
        "http://connect:8083/connectors/",
        "http://connect:8083/connectors/shop/config",
        "http://connect:8083/connectors/shop?x=1",
        "file:///etc/passwd/connectors/x",
        "http:///connectors/x",
        "http://connect:port/connectors/x",
    ],
)
def test_another_address_is_refused(url: str) -> None:
    """The message contains the form, and not the value."""
    [error] = errors(url=url)
    assert "http://host:port/connectors/NAME" in error
    assert url not in error


def test_credentials_have_options_of_their_own() -> None:
    """The URL is in answers and logs; passwords are not."""
    with pytest.raises(ConfigError, match=r"set source\.connector\.user and source\.connector\.password") as error:
        source_connector_address("http://user:secret@connect:8083/connectors/shop")
    assert "secret" not in str(error.value)
    assert errors(user="headrace", password="p", token="t") == []
    infos = validate({**SHOP, "source.connector.password": "p-1", "source.connector.token": "t-1"}, DEFAULTS)
    assert not {"p-1", "t-1"} & {info.value.value for info in infos.configs}
