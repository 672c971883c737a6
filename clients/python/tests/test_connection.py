"""The arguments of the clients are checked before the first call."""

from __future__ import annotations

from typing import Any

import pytest

from palimpsest import AsyncPalimpsest, Palimpsest
from palimpsest._connection import credential, server_url
from world import Server

KEY = "plk_0123456789"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("127.0.0.1:51100", "http://127.0.0.1:51100"),
        ("localhost:51100", "http://localhost:51100"),
        # The default port, as on the command line.
        ("localhost", "http://localhost:50051"),
        ("[::1]:6000", "http://[::1]:6000"),
        (" http://host:1\n", "http://host:1"),
        ("https://host/prefix/", "https://host/prefix/"),
        ("GRPC://host:1", "grpc://host:1"),
        ("grpcs://host:1", "grpcs://host:1"),
    ],
)
def test_urls_and_addresses(given: str, expected: str) -> None:
    assert server_url(given) == expected


@pytest.mark.parametrize(
    "wrong", ["ftp://host:1", "http://", "host:port", "a b:1", "http://host:1?x=1", "http:/host:1"]
)
@pytest.mark.parametrize("kind", [Palimpsest, AsyncPalimpsest])
def test_other_urls_fail_at_once(kind: Any, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="http://host:port") as caught:
        kind(wrong)
    assert repr(wrong) in str(caught.value)
    monkeypatch.setenv("PALIMPSEST_URL", wrong)
    with pytest.raises(ValueError, match="http://host:port"):
        kind()


def test_an_address_reaches_the_server(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALIMPSEST_URL", server.address)
    with Palimpsest() as client:
        assert list(client.sessions("address")) == []


def test_white_space_around_a_key_is_removed(server: Server, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert credential(f" {KEY}\r\n") == KEY
    with Palimpsest(server.at(scheme), api_key=f"{KEY}\n") as client:
        assert list(client.sessions("keys")) == []
    monkeypatch.setenv("PALIMPSEST_API_KEY", f"{KEY}\n")
    with Palimpsest(server.at(scheme)) as client:
        assert list(client.sessions("keys")) == []


@pytest.mark.parametrize("wrong", [f"{KEY}\n{KEY}", f"{KEY}\x00", f"{KEY}\u0142"])
@pytest.mark.parametrize("url", ["http://host:1", "grpc://host:1"])
@pytest.mark.parametrize("kind", [Palimpsest, AsyncPalimpsest])
def test_a_key_that_no_header_can_have_fails_without_its_text(kind: Any, url: str, wrong: str) -> None:
    with pytest.raises(ValueError, match="API key") as caught:
        kind(url, api_key=wrong)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("wrong", [{"timeout": 0}, {"timeout": -1.0}, {"timeout": float("inf")}, {"max_retries": -1}])
def test_deadlines_and_retries_have_a_range(wrong: Any) -> None:
    [name] = wrong
    for kind in (Palimpsest, AsyncPalimpsest):
        with pytest.raises(ValueError, match=name):
            kind(**wrong)
    with Palimpsest() as client, pytest.raises(ValueError, match=name):
        client.session("demo", "a").with_options(**wrong)


@pytest.mark.parametrize(
    "wrong", ["", ".", "..", "a/b", "chat#1", "a:sync", "-a", "a b", "za\u017c\u00f3\u0142\u0107", 7]
)
def test_invalid_ids_fail_before_a_call(wrong: Any) -> None:
    with Palimpsest() as client:
        with pytest.raises(ValueError, match="id of a session"):
            client.session("demo", wrong)
        with pytest.raises(ValueError, match="id of a project"):
            client.session(wrong, "a")
        with pytest.raises(ValueError, match="id of a project"):
            client.sessions(wrong)


def test_ids_have_a_length() -> None:
    with Palimpsest() as client:
        assert client.session("p" * 64, "s" * 128).name.endswith("s" * 128)
        with pytest.raises(ValueError, match="1 to 128 characters"):
            client.session("p", "s" * 129)
        with pytest.raises(ValueError, match="1 to 64 characters"):
            client.session("p" * 65, "s")
