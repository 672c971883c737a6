"""Errors, retries, deadlines, keys and cancellation, against real faults."""

from __future__ import annotations

import asyncio
import inspect
import json
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from palimpsest import (
    AsyncPalimpsest,
    AsyncSession,
    DeadlineExceededError,
    InvalidArgumentError,
    NotFoundError,
    Palimpsest,
    PermissionDeniedError,
    ResourceExhaustedError,
    Session,
    UnauthenticatedError,
    UnavailableError,
    is_too_long,
)
from palimpsest._calls import WatchPosition
from world import SERVER, Server

BODY: dict[str, Any] = {"model": "claude-fake", "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture(scope="module")
def client(server: Server, scheme: str) -> Iterator[Palimpsest]:
    with Palimpsest(server.at(scheme)) as client:
        yield client


@pytest.fixture
async def async_client(server: Server, scheme: str) -> AsyncIterator[AsyncPalimpsest]:
    async with AsyncPalimpsest(server.at(scheme)) as client:
        yield client


def test_errors_have_a_reason_and_details(client: Palimpsest, scheme: str, name: str) -> None:
    context = client.session("demo", name)
    with pytest.raises(NotFoundError) as caught:
        context.get()
    error = caught.value
    assert (error.code, error.reason) == ("NOT_FOUND", "SESSION_NOT_FOUND")
    assert error.status == (404 if scheme == "http" else 0)
    assert error.metadata == {"session": context.name}
    assert "does not exist" in error.message
    assert str(error).startswith("SESSION_NOT_FOUND: ")
    assert len(error.details) == 2
    assert error.retry_after is None
    assert not error.retryable
    with pytest.raises(InvalidArgumentError, match=r"palimpsest\.nope"):
        context.sync(BODY, palimpsest={"nope": 1})
    with pytest.raises(NotFoundError) as caught:
        next(context.watch())
    assert caught.value.reason == "SESSION_NOT_FOUND"
    with pytest.raises(NotFoundError) as caught:
        context.run_tool({"type": "tool_use", "id": "c1", "name": "nope", "input": {}})
    assert caught.value.reason in {"TOOL_NOT_FOUND", "SESSION_NOT_FOUND"}


def test_keys_have_rights(tmp_path: Path, scheme: str) -> None:
    keys = tmp_path / "keys.toml"

    def key(right: str) -> str:
        command = [SERVER, "keys", "create", "--keys-file", str(keys), "--project", "demo", "--right", right, "--json"]
        created = subprocess.run(command, check=True, capture_output=True, text=True)
        return str(json.loads(created.stdout)["key"])

    writer, reader = key("read,write"), key("read")
    server = Server(tmp_path / "data", "--set", f"auth.keys_file={keys}")
    try:
        with Palimpsest(server.at(scheme), api_key=writer) as client:
            assert client.session("demo", "a").sync(BODY).sendable
        with Palimpsest(server.at(scheme), api_key=reader) as client:
            assert client.session("demo", "a").get()["revision"] > 0
            with pytest.raises(PermissionDeniedError) as denied:
                client.session("demo", "a").update(title="A title")
            assert denied.value.metadata == {"permission": "write"}
        for wrong in (None, "wrong"):
            hint = "pass `api_key` or set PALIMPSEST_API_KEY"
            with (
                Palimpsest(server.at(scheme), api_key=wrong) as client,
                pytest.raises(UnauthenticatedError, match=hint),
            ):
                client.session("demo", "a").get()
    finally:
        server.stop()


def test_environment_has_url_and_key(server: Server, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALIMPSEST_URL", server.at(scheme))
    monkeypatch.setenv("PALIMPSEST_API_KEY", "a key that this server does not check")
    with Palimpsest() as client:
        assert list(client.sessions("environment")) == []


def test_calls_wait_for_a_server_that_restarts(tmp_path: Path, scheme: str) -> None:
    server = Server(tmp_path / "data")
    with Palimpsest(server.at(scheme), timeout=30) as client:
        context = client.session("demo", "a")
        view = context.sync(BODY)
        watched: list[Any] = []
        watch = threading.Thread(target=lambda: watched.append(next(context.watch(kinds=["session_updated"]))))
        watch.start()
        time.sleep(0.2)
        server.stop(signal.SIGTERM)
        restarted: list[Server] = []

        def restart() -> None:
            time.sleep(0.5)
            restarted.append(Server(tmp_path / "data", listen=server.address))

        thread = threading.Thread(target=restart)
        thread.start()
        try:
            assert context.sync(BODY).messages == view.messages
            context.update(title="after the restart")
            watch.join(timeout=20)
            assert "session_updated" in watched[0]
        finally:
            thread.join()
            restarted[0].stop()


def test_a_watch_outlives_its_deadline(tmp_path: Path, scheme: str) -> None:
    server = Server(tmp_path / "data")
    with Palimpsest(server.at(scheme), timeout=30) as client:
        context = client.session("demo", "a")
        context.sync(BODY)
        watched: list[Any] = []
        # The budget of the retries begins with the failure, and not with the last element.
        seconds = 5.0
        watch = threading.Thread(
            target=lambda: watched.append(
                next(context.with_options(timeout=seconds, max_retries=50).watch(kinds=["session_updated"]))
            )
        )
        watch.start()
        time.sleep(seconds + 0.5)
        server.stop()
        restarted = Server(tmp_path / "data", listen=server.address)
        try:
            context.update(title="after the restart")
            watch.join(timeout=20)
            assert "session_updated" in watched[0]
        finally:
            restarted.stop()


def test_repeated_elements_of_a_watch_are_skipped() -> None:
    def element(revision: int, position: int, kind: str) -> Any:
        return {"revision": position, "event": {"revision": revision, kind: {}}}

    position = WatchPosition(2)
    first, second = element(3, 2, "calls_interrupted"), element(3, 3, "view_served")
    assert [position.is_new(it) for it in (first, first, second)] == [True, False, True]
    assert position.revision == 3
    # A heartbeat has no event, and a later event of the kind is new.
    assert not position.is_new({"revision": 4})
    assert position.is_new(element(5, 5, "view_served"))


def test_an_unreachable_server_fails_at_the_deadline(scheme: str) -> None:
    started = time.monotonic()
    with Palimpsest(f"{scheme}://127.0.0.1:9", timeout=0.5) as client, pytest.raises(UnavailableError) as caught:
        client.session("demo", "a").get()
    assert time.monotonic() - started < 2
    assert (caught.value.reason, caught.value.retryable) == ("", True)
    assert f"Cannot reach {scheme}://127.0.0.1:9: " in str(caught.value)
    assert "refused" in str(caught.value)


def test_an_exceeded_rate_is_retried_after_its_delay(tmp_path: Path, scheme: str) -> None:
    config = tmp_path / "palimpsest.toml"
    config.write_text("[projects.demo.quotas]\nrequests_per_second = 2\n")
    server = Server(tmp_path / "data", "--config", str(config))
    try:
        with Palimpsest(server.at(scheme)) as client:
            context = client.session("demo", "a")
            impatient = context.with_options(max_retries=0)
            with pytest.raises(ResourceExhaustedError) as caught:
                for _ in range(20):
                    impatient.sync(BODY)
            assert caught.value.reason == "REQUEST_RATE_EXCEEDED"
            assert caught.value.retry_after
            assert caught.value.retryable
            for _ in range(4):
                assert context.sync(BODY).sendable
    finally:
        server.stop()


def test_a_change_that_is_retried_takes_effect_once(client: Palimpsest, name: str) -> None:
    context = client.session("demo", name)
    request = context._path.create({"title": "A title"})
    first = context._send(request)
    assert context._send(request) == first


def test_a_deadline_ends_a_call(client: Palimpsest, scheme: str, name: str) -> None:
    context = client.session("demo", name)
    large = {"model": "claude-fake", "messages": [{"role": "user", "content": "some words " * 500_000}]}
    with pytest.raises(DeadlineExceededError) as caught:
        context.with_options(timeout=0.01).sync(large)
    # Over gRPC, the client ends the call at the same moment as the server.
    assert caught.value.reason in ({"DEADLINE_EXCEEDED"} if scheme == "http" else {"DEADLINE_EXCEEDED", ""})
    assert context.sync(large).sendable


def test_a_server_that_does_not_answer_fails_at_the_deadline(tmp_path: Path, scheme: str) -> None:
    server = Server(tmp_path / "data")
    with Palimpsest(server.at(scheme), timeout=0.5) as client:
        server.process.send_signal(signal.SIGSTOP)
        started = time.monotonic()
        with pytest.raises(DeadlineExceededError):
            client.session("demo", "a").sync(BODY)
        assert time.monotonic() - started < 3
    server.stop()


async def test_async_errors_and_deadlines(async_client: AsyncPalimpsest, name: str) -> None:
    context = async_client.session("demo", name)
    with pytest.raises(NotFoundError):
        await context.get()
    large = {"model": "claude-fake", "messages": [{"role": "user", "content": "some words " * 500_000}]}
    with pytest.raises(DeadlineExceededError):
        await context.with_options(timeout=0.01).sync(large)
    with pytest.raises(NotFoundError):
        await anext(context.watch())


async def test_a_cancelled_call_leaves_the_client_usable(async_client: AsyncPalimpsest, name: str) -> None:
    context = async_client.session("demo", name)
    await context.sync(BODY)

    async def wait_for_compaction() -> Any:
        return await anext(context.watch(kinds=["compacted"]))

    watch = asyncio.create_task(wait_for_compaction())
    calls = [asyncio.create_task(context.sync(BODY)) for _ in range(20)]
    await asyncio.sleep(0.01)
    for task in (watch, *calls[::2]):
        task.cancel()
    results = await asyncio.gather(watch, *calls, return_exceptions=True)
    assert all(not isinstance(it, Exception) for it in results if not isinstance(it, asyncio.CancelledError))
    assert (await context.sync(BODY)).outcome == "equal"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("prompt is too long: 210000 tokens > 200000 maximum", True),
        ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", True),
        ("This model's maximum context length is 8192 tokens. However, your messages resulted in 9000", True),
        ("Your input exceeds the context window of this model.", True),
        ("Input is too long for requested model.", True),
        ("The input token count (9) exceeds the maximum number of tokens allowed (8)", True),
        ("the request exceeds the available context size", True),
        ("messages.0.content: Field required", False),
        ("rate limit exceeded", False),
    ],
)
def test_rejections_as_too_long_are_recognized(text: str, expected: bool) -> None:
    assert is_too_long(Exception(text)) == expected


@pytest.mark.parametrize(("sync", "async_"), [(Palimpsest, AsyncPalimpsest), (Session, AsyncSession)])
def test_both_clients_have_the_same_methods(sync: type, async_: type) -> None:
    def methods(kind: type) -> dict[str, list[str]]:
        public = {name: it for name, it in vars(kind).items() if inspect.isfunction(it) and not name.startswith("_")}
        return {name: list(inspect.signature(it).parameters) for name, it in public.items()}

    assert methods(sync) == methods(async_)
