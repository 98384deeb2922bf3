"""The client of registries: requests, caches, logins, retries and errors, against a server over HTTP."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ks_actors import ConfigError
from ks_actors.log.kafka import Token
from ks_actors.registry import (
    InMemoryRegistry,
    Reference,
    RegisteredSchema,
    RegistryError,
    RegistryRefused,
    RegistryUnavailable,
    Schema,
    SchemaIncompatible,
    SchemaNotFound,
    SchemaRegistry,
)
from tests.ks_actors.log.kafka.client.certificates import Authority
from tests.ks_actors.registry.server import Server, serving

TEXT = Schema('{"type":"string"}')
NUMBER = Schema('{"type":"long"}')


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(InMemoryRegistry()) as made:
        yield made


async def test_schemas_are_registered_and_found(server: Server) -> None:
    """Equal schemas have one id in all subjects; versions count in a subject; names may have any characters."""
    registry = SchemaRegistry(server.url)
    first = await registry.register("a/b c", TEXT)
    assert first == RegisteredSchema(TEXT, 1, "a/b c", 1, first.guid)
    assert (await registry.register("a/b c", NUMBER)).version == 2
    assert (await registry.register("other", NUMBER)).id == 2
    assert await registry.lookup("a/b c", TEXT) == first
    assert await registry.subjects() == ["a/b c", "other"]
    fresh = SchemaRegistry(server.url + "/")
    assert await fresh.versions("a/b c") == [1, 2]
    assert (await fresh.latest("a/b c")).schema == NUMBER
    assert await fresh.version("a/b c", 1) == first
    assert await fresh.schema(1) == TEXT
    assert first.guid is not None
    assert await fresh.schema(first.guid) == TEXT


async def test_what_a_schema_refers_to_and_its_type_are_kept(server: Server) -> None:
    """References and types come back as they were registered."""
    registry = SchemaRegistry(server.url)
    await registry.register("part", TEXT)
    whole = Schema("{}", "JSON", (Reference("part.json", "part", 1),))
    registered = await registry.register("whole", whole)
    assert await SchemaRegistry(server.url).schema(registered.id) == whole
    with pytest.raises(SchemaNotFound, match="Version 3 not found"):
        await registry.register("whole", Schema("{}", "JSON", (Reference("part.json", "part", 3),)))


async def test_answers_are_kept(server: Server) -> None:
    """No question is asked twice, for schemas never change; the latest version may."""
    registry = SchemaRegistry(server.url)
    registered = await registry.register("s", TEXT)
    asked = len(server.registry.requests)
    assert await registry.register("s", TEXT) == await registry.lookup("s", TEXT) == await registry.version("s", 1) == registered
    await registry.schema(registered.id)
    assert len(server.registry.requests) == asked
    assert await registry.latest("s") == await registry.latest("s")
    assert len(server.registry.requests) == asked + 2


async def test_an_older_registry_that_tells_ids_alone_is_asked_for_the_rest(server: Server) -> None:
    """Version and GUID come from a lookup then; a registry without GUIDs gives None."""
    server.answer = lambda method, path: (200, {"id": 1}) if method == "POST" and path.endswith("/versions") else None
    server.registry.answer("POST", "subjects/s/versions", TEXT.request())
    assert (await SchemaRegistry(server.url).register("s", TEXT)).version == 1
    server.answer = lambda method, path: (200, {"id": 1, "version": 4})
    assert await SchemaRegistry(server.url).register("s", TEXT) == RegisteredSchema(TEXT, 1, "s", 4, None)


async def test_compatibility_is_asked_without_registering(server: Server) -> None:
    """The reasons are those of the registry; a new subject takes any schema. Registering tells the reason, too."""
    registry = SchemaRegistry(server.url)
    assert await registry.incompatibilities("s", TEXT) == []
    await registry.register("s", TEXT)
    assert await registry.incompatibilities("s", NUMBER) == []
    server.registry.refuse("s", "reader type: LONG not compatible with STRING")
    assert await registry.incompatibilities("s", NUMBER) == ["reader type: LONG not compatible with STRING"]
    with pytest.raises(SchemaIncompatible, match="reader type: LONG not compatible") as refused:
        await registry.register("s", NUMBER)
    assert (refused.value.status, refused.value.code) == (409, 409)


async def test_a_schema_that_another_client_registers_at_the_same_time_is_found(server: Server) -> None:
    """A conflict with a request of the same schema is no incompatibility."""
    registered = await SchemaRegistry(server.url).register("s", TEXT)
    server.answer = lambda _method, path: (409, {"message": "already exists"}) if path.endswith("/versions") else None
    assert await SchemaRegistry(server.url).register("s", TEXT) == registered


@pytest.mark.parametrize(
    ("call", "told"),
    [(lambda r: r.schema(9), "40403"), (lambda r: r.latest("no"), "Subject 'no' not found"), (lambda r: r.lookup("s", NUMBER), "Schema not found")],
)
async def test_what_the_registry_lacks_is_an_error_of_its_own(call: Any, told: str, server: Server) -> None:
    """It names the registry and the request, and is raised at once."""
    registry = SchemaRegistry(server.url)
    await registry.register("s", TEXT)
    with pytest.raises(SchemaNotFound, match=told) as error:
        await call(registry)
    assert server.url in str(error.value)


async def test_a_login_is_sent_and_never_shown(server: Server) -> None:
    """A wrong one is refused at once, with the remedy; neither repr nor error has the secret."""
    server.basic("key", "hunter2")
    registry = SchemaRegistry(server.url, basic_auth=("key", "hunter2"), headers={"target-sr-cluster": "lsrc-1"})
    await registry.register("s", TEXT)
    assert server.seen[-1]["Target-Sr-Cluster"] == "lsrc-1"
    assert "hunter2" not in repr(registry)
    with pytest.raises(RegistryRefused, match=r"401 .*check the login: basic_auth") as refused:
        await SchemaRegistry(server.url, basic_auth=("key", "hunter3")).register("s", TEXT)
    assert "hunter3" not in str(refused.value)
    server.login, server.answer = None, lambda _method, _path: (403, {"error_code": 40301, "message": "denied"})
    with pytest.raises(RegistryRefused, match=r"40301.*give this user the right"):
        await registry.subjects()


async def test_tokens_are_sent_and_shared(server: Server) -> None:
    """A function is called once for a token's life; one that fails is a refusal that says so."""
    server.login = "Bearer secret"
    asked: list[int] = []

    async def token() -> Token:
        asked.append(1)
        return Token("secret", expires_at=4e9)

    registry = SchemaRegistry(server.url, token=token)
    await registry.subjects()
    await registry.subjects()
    assert len(asked) == 1
    fixed: dict[str, Any] = {"token": "secret"}
    assert await SchemaRegistry(server.url, **fixed).subjects() == []

    def none() -> str:
        raise OSError("the vault is sealed")

    with pytest.raises(RegistryRefused, match=r"there is no token for the registry: .*the vault is sealed"):
        await SchemaRegistry(server.url, token=none).subjects()


async def test_a_token_endpoint_issues_tokens_to_the_client(server: Server) -> None:
    """By id and secret, over https or on this machine."""
    server.answer = lambda method, path: (200, {"access_token": "issued", "expires_in": 300}) if path == "/token" else None
    client: dict[str, Any] = {"client_id": "me", "client_secret": "hunter2", "scope": "registry"}
    registry = SchemaRegistry(server.url, token_endpoint=f"{server.url}/token", **client)
    await registry.subjects()
    assert [seen.get("Authorization", "").partition(" ")[0] for seen in server.seen] == ["Basic", "Bearer"]


async def test_a_registry_that_is_not_ready_is_asked_again(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """For 408, 429 and 5xx, within the deadline, with one warning; the next address has its turn at once."""
    caplog.set_level(logging.WARNING, "ks_actors.registry")
    left = [503, 429, 500]
    server.answer = lambda _method, _path: (left.pop(), {"message": "busy"}) if left else None
    assert await SchemaRegistry(server.url).subjects() == []
    assert not left
    assert [record.getMessage() for record in caplog.records] == [
        f"{server.url} does not answer, and is asked again for 60 s: 500 {{'message': 'busy'}}"
    ]
    assert await SchemaRegistry(f"http://127.0.0.1:1, {server.url}").subjects() == []
    assert len(caplog.records) == 1


async def test_a_registry_that_stays_away_is_given_up_at_the_deadline(server: Server) -> None:
    """The error names address, request, time and reason, and what to look at."""
    server.answer = lambda _method, _path: (503, b"<html>")
    with pytest.raises(RegistryUnavailable, match=r"gave no answer to GET subjects within 0\.05 s: 503 .*check the url"):
        await SchemaRegistry(server.url, deadline_ms=50).subjects()
    with pytest.raises(RegistryUnavailable, match="refused"):
        await SchemaRegistry("http://127.0.0.1:1", deadline_ms=50).subjects()


async def test_requests_leave_the_event_loop_free(server: Server) -> None:
    """A silent registry holds up its request alone, which can be cancelled."""
    asked, free = threading.Event(), threading.Event()

    def silent(_method: str, _path: str) -> None:
        asked.set()
        free.wait()

    server.answer = silent
    request = asyncio.ensure_future(SchemaRegistry(server.url).subjects())
    await asyncio.to_thread(asked.wait)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    free.set()


async def test_an_answer_that_is_no_registrys_is_an_error(server: Server) -> None:
    """A page, a redirect to another host, and JSON of another form: each says what came."""
    registry = SchemaRegistry(server.url)
    server.answer = lambda _method, _path: (200, b"<html>hello</html>")
    with pytest.raises(RegistryError, match="no JSON: is this a schema registry"):
        await registry.subjects()
    server.answer = lambda _method, _path: (302, "https://evil.example/")
    with pytest.raises(RegistryError, match=r"redirects to https://evil\.example/: give that address"):
        await registry.subjects()
    server.answer = lambda _method, _path: (200, {"a": 1})
    with pytest.raises(RegistryError, match="Expected"):
        await registry.subjects()
    with pytest.raises(RegistryError, match="Expected"):
        await registry.schema(1)


async def test_tls_needs_a_trusted_certificate(tmp_path: Path) -> None:
    """An unknown CA is an error at once, with the remedy; a context of one's own makes it known."""
    authority = Authority(tmp_path / "ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.put(tmp_path / "server.pem"))
    with serving(InMemoryRegistry(), context) as server:
        with pytest.raises(RegistryError, match=r"TLS with https://127.* failed: .*CERTIFICATE_VERIFY_FAILED.*give its CA: ssl_context=") as failed:
            await SchemaRegistry(server.url).subjects()
        assert not isinstance(failed.value, RegistryUnavailable)
        trusted = ssl.create_default_context(cafile=str(authority.certificate))
        assert await SchemaRegistry(server.url, ssl_context=trusted).subjects() == []
    with serving(InMemoryRegistry()) as plain, pytest.raises(RegistryError, match="check that it speaks https"):
        await SchemaRegistry(plain.url.replace("http:", "https:"), ssl_context=trusted).subjects()


@pytest.mark.parametrize(
    ("url", "options", "told"),
    [
        ("registry:8081", {}, "give https://host:port, or mock://name"),
        ("https://u:p@host", {}, "has a login in it: give it as basic_auth"),
        ("http://host", {"basic_auth": ("u", "p")}, "in the clear: give its https address"),
        ("http://host", {"token": "t"}, "in the clear"),
        ("https://host", {"token": "t", "basic_auth": ("u", "p")}, "one login"),
        ("https://host", {"client_id": "me"}, "for a token_endpoint"),
        ("https://host", {"token_endpoint": "https://i/t"}, "client_id and its secret are for a token endpoint"),
    ],
)
def test_wrong_addresses_and_logins_are_refused_at_once(url: str, options: Any, told: str) -> None:
    """Before a secret can leak, and with the remedy."""
    with pytest.raises(ConfigError, match=told) as refused:
        SchemaRegistry(url, **options)
    assert "u:p" not in str(refused.value)
