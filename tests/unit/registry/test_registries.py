"""The clients of schema registries, against a local HTTP server."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
from support.servers.http_registry import Server

from headrace.converters.registered import IdKind, RegisteredSchema, SchemaId
from headrace.core.model.errors import BadRecord, ConfigError, Retriable
from headrace_connectors.registry import ApicurioRegistry, ConfluentRegistry


@pytest.fixture
def server() -> Iterator[Server]:
    """Start a registry without schemas."""
    found = Server()
    yield found
    found.close()


ONE = SchemaId(IdKind.ID, 1)


def confluent(server: Server, **options: str) -> ConfluentRegistry:
    given = {name.replace("__", "."): value for name, value in options.items()}
    return ConfluentRegistry({"schema.registry.url": server.url, **given})


def test_confluents_api(server: Server) -> None:
    """Schemas are fetched by id and by GUID, with their references."""
    server.answers = {
        "/schemas/ids/1": (200, {"schema": '"int"'}),
        "/schemas/guids/g": (
            200,
            {"schema": "s", "schemaType": "PROTOBUF", "references": [{"name": "a", "subject": "x/y", "version": 3}]},
        ),
        "/subjects/x%2Fy/versions/3": (200, {"schema": "t", "schemaType": "PROTOBUF", "id": 9}),
    }
    assert confluent(server).fetch(ONE) == RegisteredSchema('"int"')
    assert confluent(server).fetch(SchemaId(IdKind.GUID, "g")) == RegisteredSchema(
        "s", "PROTOBUF", {"a": RegisteredSchema("t", "PROTOBUF")}
    )


def test_the_subject_of_a_topic_is_sent(server: Server) -> None:
    """The request has the topic's subject, and references are fetched in the context of the returned subject."""
    schema = {"schema": "s", "subject": ":.eu:a b-value", "references": [{"name": "r", "subject": "x", "version": 3}]}
    server.answers = {
        "/schemas/ids/1?subject=a%20b-value": (200, schema),
        "/subjects/%3A.eu%3Ax/versions/3": (200, {"schema": "t", "subject": ":.eu:x"}),
        "/schemas/guids/g": (200, {"schema": "u"}),
    }
    in_subject = SchemaId(IdKind.ID, 1, "a b-value")
    assert confluent(server).fetch(in_subject) == RegisteredSchema("s", references={"r": RegisteredSchema("t")})
    with pytest.raises(BadRecord, match="id 2 of subject c-value"):
        confluent(server).fetch(SchemaId(IdKind.ID, 2, "c-value"))


def test_apicurios_api(server: Server) -> None:
    """Schemas are fetched by global id, content id, content hash or version, and their references separately."""
    server.answers = {
        "/apis/registry/v2/ids/globalIds/1": (200, b'"int"'),
        "/apis/registry/v2/ids/globalIds/1/references": (200, []),
        "/apis/registry/v2/ids/contentIds/2": (200, b'"R"'),
        "/apis/registry/v2/ids/contentIds/2/references": (
            200,
            [{"groupId": None, "artifactId": "a b", "version": "1", "name": "R"}],
        ),
        "/apis/registry/v2/ids/contentHashes/abc": (200, b'"long"'),
        "/apis/registry/v2/ids/contentHashes/abc/references": (200, []),
        "/apis/registry/v2/groups/default/artifacts/a%20b/versions/1": (200, b"r"),
        "/apis/registry/v2/groups/default/artifacts/a%20b/versions/1/references": (200, []),
    }
    registry = ApicurioRegistry({"apicurio.registry.url": f"{server.url}/apis/registry/v2"})
    assert registry.fetch(SchemaId(IdKind.GLOBAL_ID, 1)) == RegisteredSchema('"int"')
    assert registry.fetch(SchemaId(IdKind.CONTENT_ID, 2)).references == {"R": RegisteredSchema("r")}
    assert registry.fetch(SchemaId(IdKind.CONTENT_HASH, "abc")) == RegisteredSchema('"long"')
    assert registry.fetch(SchemaId(IdKind.VERSION, "default/a%20b/1")) == RegisteredSchema("r")


@pytest.mark.parametrize(
    ("code", "body", "error"),
    [
        (404, {"error_code": 40403}, BadRecord),
        (404, {"error_code": 404, "name": "ContentNotFoundException"}, BadRecord),
        (404, {"error_code": 404, "name": "NotFoundException"}, ConfigError),
        (404, b"<html>", ConfigError),
        (401, {"error_code": 401}, ConfigError),
        (403, b"", ConfigError),
        (429, b"", Retriable),
        (500, {"error_code": 50001}, Retriable),
        (200, b"<html>", Retriable),
        (200, {"nothing": 1}, Retriable),
    ],
)
def test_error_responses_are_classified(server: Server, code: int, body: object, error: type[Exception]) -> None:
    """An unknown id is a BadRecord, a wrong address or password a ConfigError; other errors are Retriable."""
    server.answers = {"/schemas/ids/1": (code, body)}
    with pytest.raises(error):
        confluent(server).fetch(ONE)


def test_the_next_address_is_tried_when_one_is_down(server: Server) -> None:
    """The client tries the next registry address, and raises Retriable if none responds."""
    down = Server()
    down.close()
    server.answers = {"/schemas/ids/1": (200, {"schema": "s"})}
    assert confluent(server, schema__registry__url=f"{down.url}, {server.url}").fetch(ONE).text == "s"
    with pytest.raises(Retriable, match="does not answer"):
        confluent(server, schema__registry__url=down.url).fetch(ONE)


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({"schema__registry__url": "http://u:p%40w@HOST/"}, "Basic " + base64.b64encode(b"u:p@w").decode()),
        (
            {"basic__auth__credentials__source": "USER_INFO", "schema__registry__basic__auth__user__info": "a:b"},
            "Basic " + base64.b64encode(b"a:b").decode(),
        ),
        ({"bearer__auth__credentials__source": "STATIC_TOKEN", "bearer__auth__token": "t"}, "Bearer t"),
        ({"bearer__auth__credentials__source": "static_token", "bearer__auth__token": "t"}, "Bearer t"),
        (
            {"basic__auth__credentials__source": "user_info", "basic__auth__user__info": "a:b"},
            "Basic " + base64.b64encode(b"a:b").decode(),
        ),
        ({}, None),
    ],
)
def test_credentials(server: Server, options: dict[str, str], sent: str | None) -> None:
    """Credentials are read from the URL, from the user info or from a static token."""
    server.answers = {"/schemas/ids/1": (200, {"schema": "s"})}
    confluent(server, **{name: value.replace("HOST", server.host) for name, value in options.items()}).fetch(ONE)
    assert server.asked[0][1].get("Authorization") == sent


@pytest.mark.parametrize(
    "options",
    [
        {"schema__registry__url": ""},
        {"schema__registry__url": "registry:8081"},
        {"basic__auth__credentials__source": "SASL_INHERIT"},
        {"basic__auth__credentials__source": "USER_INFO"},
        {"bearer__auth__credentials__source": "OAUTHBEARER"},
        {"schema__registry__ssl__truststore__location": "/no/such.pem"},
        {"schema__registry__ssl__truststore__type": "XML"},
        {"schema__registry__ssl__engine__factory__class": "x.Y"},
    ],
)
def test_invalid_options_are_refused(server: Server, options: dict[str, str]) -> None:
    """Invalid options raise ConfigError before a request is sent."""
    with pytest.raises(ConfigError):
        confluent(server, **options)
    assert server.asked == []


def test_messages_show_no_credentials(server: Server) -> None:
    """An error message omits the user and password of the registry's URL."""
    server.answers = {"/schemas/ids/1": (500, b"")}
    with pytest.raises(Retriable) as caught:
        confluent(server, schema__registry__url=f"http://user:secret@{server.host}").fetch(ONE)
    assert "secret" not in str(caught.value)


def test_a_proxy_is_used(server: Server) -> None:
    """The client sends the absolute URL to the proxy; ``proxy.host`` without ``proxy.port`` is refused."""
    server.answers = {"http://registry.invalid/schemas/ids/1": (200, {"schema": '"int"'})}
    host, _, port = server.host.partition(":")
    registry = confluent(server, schema__registry__url="http://registry.invalid", proxy__host=host, proxy__port=port)
    assert registry.fetch(ONE) == RegisteredSchema('"int"')
    with pytest.raises(ConfigError, match="go together"):
        confluent(server, proxy__host=host)


def test_a_token_has_its_cluster_and_identity_pool(server: Server) -> None:
    """A bearer token is sent with the logical cluster and identity pool, as Confluent Cloud requires."""
    server.answers = {"/schemas/ids/1": (200, {"schema": '"int"'})}
    token = {"bearer__auth__credentials__source": "STATIC_TOKEN", "bearer__auth__token": "t"}
    confluent(server, **token, bearer__auth__logical__cluster="lsrc-1", bearer__auth__identity__pool__id="p").fetch(ONE)
    headers = {name.lower(): value for name, value in server.asked[-1][1].items()}
    assert (headers["target-sr-cluster"], headers["confluent-identity-pool-id"]) == ("lsrc-1", "p")


@pytest.mark.parametrize("options", [{"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": "u:p"}, {}])
def test_a_redirect_to_another_server_carries_no_credentials(server: Server, options: dict[str, str]) -> None:
    """The client follows a redirect to another server without the Authorization header."""
    other, path = Server(), "/schemas/ids/1"
    try:
        other.answers[path] = 200, {"schema": '"string"'}
        server.moved[path] = f"{other.url}{path}"
        url = server.url if options else f"http://u:p@{server.host}"
        registry = ConfluentRegistry({"schema.registry.url": url, **options})
        assert registry.fetch(ONE).text == '"string"'
        assert "Authorization" in server.asked[0][1]
        assert "Authorization" not in other.asked[0][1]
    finally:
        other.close()


def test_a_redirect_within_the_server_keeps_the_credentials(server: Server) -> None:
    """The client follows a redirect to another path of the server with the Authorization header."""
    server.moved["/schemas/ids/1"] = f"{server.url}/elsewhere"
    server.answers["/elsewhere"] = 200, {"schema": '"string"'}
    url = f"http://u:p@{server.host}"
    assert ConfluentRegistry({"schema.registry.url": url}).fetch(ONE).text == '"string"'
    assert ["Authorization" in headers for _, headers in server.asked] == [True, True]
