"""Sessions of the sync client."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from palimpsest import AsyncPalimpsest, FailedPreconditionError, NotFoundError, NotSendableError, Palimpsest
from palimpsest._http import connection_settings
from world import ANTHROPIC_TOOL, LOG, Server


@pytest.fixture(scope="module")
def client(server: Server, scheme: str) -> Iterator[Palimpsest]:
    with Palimpsest(server.at(scheme)) as client:
        yield client


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def turns(count: int, words: int = 2_000) -> list[dict[str, Any]]:
    texts = [user(f"question {n} " + "word " * words) if n % 2 == 0 else assistant(f"answer {n}") for n in range(count)]
    return [*texts, user("last question")]


def test_a_view_has_the_body_with_its_array(client: Palimpsest, name: str) -> None:
    context = client.session("demo", name)
    messages = [user("Why did the build fail?")]
    view = context.sync(model="claude-fake", system="Be brief.", max_tokens=100, messages=messages)
    assert view.sendable
    assert view.not_sendable_reason == ""
    assert view.outcome == "new"
    assert view.session == context.name
    assert view.request == {
        "model": "claude-fake",
        "system": "Be brief.",
        "max_tokens": 100,
        "messages": view.messages,
    }
    assert "Why did the build fail?" in str(view.messages)
    assert view.tokens["total_tokens"] > 0
    assert view.budget["state"] == "normal"
    assert [it["code"] for it in view.warnings] == ["window_assumed"]
    assert view.etag
    assert view.revision > 0
    assert messages == [user("Why did the build fail?")]
    repeated = context.sync(view.body)
    assert (repeated.outcome, repeated.messages) == ("equal", view.messages)


def test_each_warning_of_a_session_is_logged_once(client: Palimpsest, name: str, caplog: Any) -> None:
    caplog.set_level(logging.WARNING, "palimpsest")
    messages = [user("Why did the build fail?")]
    for _ in range(3):
        # Adapters open a session for each model call.
        client.session("demo", name).sync(model="claude-fake", messages=messages)
    logged = [it.getMessage() for it in caplog.records if name in it.getMessage()]
    assert len(logged) == 1
    assert "window" in logged[0]
    assert logged[0].endswith("(window_assumed)")


def test_an_array_that_ends_with_the_model_is_not_sendable(client: Palimpsest, name: str) -> None:
    view = client.session("demo", name).sync(model="m", messages=[user("a"), assistant("b")])
    assert not view.sendable
    with pytest.raises(NotSendableError) as caught:
        _ = view.request
    assert caught.value.reason == view.not_sendable_reason == "ends_with_assistant"


def test_openai_arrays_keep_their_system_messages(client: Palimpsest, name: str) -> None:
    context = client.session("demo", name, "openai_chat")
    system = {"role": "system", "content": "Be brief."}
    view = context.sync(model="gpt-fake", messages=[system, user("hello")])
    assert [it["role"] for it in view.messages] == ["system", "user"]
    assert view.messages[0] == system


def test_responses_have_an_input(client: Palimpsest, name: str) -> None:
    context = client.session("demo", name)
    view = context.sync(model="gpt-fake", instructions="Be brief.", input="hello")
    assert view.request["input"] == view.messages
    assert "hello" in str(view.messages)
    with pytest.raises(ValueError, match="previous_response_id"):
        context.sync(model="gpt-fake", input="hello", previous_response_id="resp_1")


def test_cache_breakpoints_are_set_in_a_copy(client: Palimpsest, name: str) -> None:
    messages = [user("hello")]
    view = client.session("demo", name).sync(
        model="claude-fake", system="Be brief.", messages=messages, cache_breakpoints=True
    )
    mark = {"type": "ephemeral"}
    assert view.request["system"] == [{"type": "text", "text": "Be brief.", "cache_control": mark}]
    assert view.request["messages"][0]["content"][0]["cache_control"] == mark
    assert "cache_control" not in str(view.messages)
    assert messages == [user("hello")]


def test_thinking_stays_in_the_view_if_the_request_enables_it(client: Palimpsest, name: str) -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "abc"}
    call = {"type": "tool_use", "id": "t1", "name": "read_log", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
    messages = [user("a"), {"role": "assistant", "content": [thought, call]}, {"role": "user", "content": [result]}]
    thinking = {"type": "enabled", "budget_tokens": 1_024}
    view = client.session("demo", name).sync(model="claude-fake", thinking=thinking, messages=messages)
    assert thought in view.messages[1]["content"]


def test_a_large_result_is_replaced_and_read_back(client: Palimpsest, name: str) -> None:
    context = client.session("demo", name, "anthropic_messages")
    tools = context.tools()
    assert "ReadToolResult" in [tool["name"] for tool in tools]
    call = {"type": "tool_use", "id": "c1", "name": "read_log", "input": {}}
    messages = [user("Why?"), {"role": "assistant", "content": [call]}]
    messages += [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": LOG}]}]
    view = context.sync(model="claude-fake", messages=messages, tools=[ANTHROPIC_TOOL, *tools])
    assert "disk full" not in str(view.messages)
    assert len(str(view.messages)) < 5_000
    read = {"type": "tool_use", "id": "c2", "name": "ReadToolResult", "input": {"tool_use_id": "c1", "tail_lines": 1}}
    assert context.is_own(read)
    assert not context.is_own(call)
    assert context.run_tool(read) == {"type": "tool_result", "tool_use_id": "c2", "content": "disk full\n"}
    assert list(context.search("disk full"))


@pytest.mark.parametrize("format_", ["anthropic_messages", "openai_chat", "openai_responses"])
def test_tools_are_defined_in_each_format(client: Palimpsest, name: str, format_: Any) -> None:
    context = client.session("demo", name)
    with pytest.raises(ValueError, match="format"):
        context.tools()
    tools = context.tools(format_)
    assert tools == context.tools(format_)
    assert len(tools) > 2


def test_a_compaction_shortens_the_view_and_undo_restores_it(client: Palimpsest, name: str) -> None:
    context = client.session("demo", name)
    body = {"model": "claude-fake", "messages": turns(10)}
    before = context.sync(body)
    compacted = context.compact()
    assert compacted["compaction"]["state"] == "succeeded"
    after = context.sync(body)
    assert len(str(after.messages)) < len(str(before.messages))
    assert context.undo()
    assert context.sync(body).messages == before.messages
    assert context.undo() is None


def test_undo_goes_back_step_by_step(client: Palimpsest, name: str) -> None:
    context = client.session("demo", name)
    body = {"model": "claude-fake", "messages": turns(10)}
    views = [context.sync(body).messages]
    context.compact()
    body["messages"] = [*turns(10), assistant("yes"), *turns(10)]
    views.append(context.sync(body).messages)
    context.compact()
    assert context.sync(body).messages != views[1]
    assert context.undo()
    assert context.sync(body).messages == views[1]
    assert context.undo()
    assert context.sync(body).messages[: len(views[0])] == views[0]


def too_long_for_undo() -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns a body, and the parameters of a model whose window is too small for it."""
    target = {"provider": "anthropic", "model": "claude-small", "window_tokens": 40_000}
    return {"model": "claude-small", "messages": turns(20, words=5_000)}, {"target": target}


def test_undo_restores_a_view_above_the_block_threshold_with_force(client: Palimpsest, name: str) -> None:
    context = client.session("demo", name)
    body, small = too_long_for_undo()
    context.sync({**body, "model": "claude-fake"})
    context.compact()
    context.sync(body, palimpsest=small)
    with pytest.raises(FailedPreconditionError) as caught:
        context.undo()
    assert caught.value.reason == "RESTORE_OVER_BLOCK"
    assert context.undo(force=True)


async def test_undo_has_force_asynchronously(async_client: AsyncPalimpsest, name: str) -> None:
    context = async_client.session("demo", name)
    body, small = too_long_for_undo()
    await context.sync({**body, "model": "claude-fake"})
    await context.compact()
    await context.sync(body, palimpsest=small)
    with pytest.raises(FailedPreconditionError):
        await context.undo()
    assert await context.undo(force=True)


def test_a_prompt_that_is_too_long_is_shortened(client: Palimpsest, name: str) -> None:
    context = client.session("demo", name)
    body = {"model": "claude-fake", "messages": turns(20)}
    before = context.sync(body)
    after = context.sync(body, too_long="prompt is too long: 30000 tokens > 15000 maximum")
    assert after.tokens["total_tokens"] < before.tokens["total_tokens"] / 2
    assert after.sendable


def test_a_view_over_the_reply_limit_is_streamed(client: Palimpsest, name: str) -> None:
    context = client.session("demo", name, "openai_chat")
    context.create(policy_overrides={"limits": {"max_reply_bytes": 65_536}})
    system = {"role": "system", "content": "Be brief."}
    messages = [system, *turns(20)]
    view = context.sync(model="gpt-fake", messages=messages)
    assert view.reply["view_omitted"]
    assert [it["role"] for it in view.messages] == [it["role"] for it in messages]
    assert view.messages[0] == system
    assert "last question" in str(view.messages[-1])


class FailedOpening:
    """A hook of an HTTP client that lets the first request of a stream fail, and records the deadlines."""

    def __init__(self) -> None:
        self.deadlines: list[int] = []

    def __call__(self, request: httpx2.Request) -> None:
        self.deadlines.append(int(request.headers["connect-timeout-ms"]))
        if request.url.path.endswith(":stream") and len(self.deadlines) == 2:
            raise httpx2.ConnectError("refused", request=request)

    def check(self) -> None:
        sync, _, retry = self.deadlines
        # The retry begins at least 0.1 seconds later, and has the deadline of the sync.
        assert retry <= sync - 100


def create_with_small_replies(server: Server, name: str) -> None:
    with Palimpsest(server.url) as client:
        client.session("demo", name).create(policy_overrides={"limits": {"max_reply_bytes": 65_536}})


def test_the_stream_of_a_view_is_retried_until_the_deadline_of_the_sync(server: Server, name: str) -> None:
    create_with_small_replies(server, name)
    hook = FailedOpening()
    http = httpx2.Client(event_hooks={"request": [hook]}, **connection_settings(server.url, None))
    with Palimpsest(http_client=http) as other:
        view = other.session("demo", name).sync(model="claude-fake", messages=turns(20))
    assert view.reply["view_omitted"]
    hook.check()


async def test_the_stream_of_a_view_is_retried_asynchronously(server: Server, name: str) -> None:
    create_with_small_replies(server, name)
    hook = FailedOpening()

    async def called(request: httpx2.Request) -> None:
        hook(request)

    http = httpx2.AsyncClient(event_hooks={"request": [called]}, **connection_settings(server.url, None))
    async with AsyncPalimpsest(http_client=http) as other:
        await other.session("demo", name).sync(model="claude-fake", messages=turns(20))
    hook.check()


def test_transcript_events_and_memory_are_readable(client: Palimpsest, name: str) -> None:
    context = client.session("demo", name, "anthropic_messages")
    context.sync(model="claude-fake", messages=turns(6, words=10))
    assert [it["ordinal"] for it in context.messages()] == list(range(1, 8))
    assert [it["ordinal"] for it in context.messages(page_size=2, descending=True)] == list(range(7, 0, -1))
    hits = list(context.search(r"QUESTION \d", regex=True, ignore_case=True))
    assert len(hits) == 3
    assert "session_created" in next(context.events())
    events = list(context.events(kinds=["messages_appended"]))
    assert len(events) == 1
    watched = context.watch(kinds=["messages_appended"])
    assert next(watched) == events[0]
    watched.close()
    assert context.memory()["state"] == "not_started"


def test_watch_yields_events_as_they_happen(client: Palimpsest, name: str) -> None:
    context = client.session("demo", name)
    context.sync(model="m", messages=turns(10))
    revision = context.get()["revision"]
    timer = threading.Timer(0.3, context.compact)
    timer.start()
    event = next(context.watch(after_revision=revision, kinds=["compacted"]))
    timer.join()
    assert event["compacted"]["state"] == "succeeded"


def test_sessions_are_listed_changed_and_deleted(client: Palimpsest, name: str) -> None:
    project = name[-10:]
    first, second = client.session(project, "first"), client.session(project, "second")
    for context in (first, second):
        context.sync(model="m", messages=[user("hello")])
    first.update(title="A title", attributes={"team": "red"})
    assert first.get()["title"] == "A title"
    listed = client.sessions(project, page_size=1)
    assert sorted(it["name"] for it in listed) == [first.name, second.name]
    first.delete()
    first.delete()
    with pytest.raises(NotFoundError):
        first.delete(missing_ok=False)
    assert [it["name"] for it in client.sessions(project)] == [second.name]


def test_a_session_with_other_options_is_the_same_session(client: Palimpsest, name: str) -> None:
    context = client.session("demo", name, "anthropic_messages")
    patient = context.with_options(timeout=30)
    context.tools()
    assert patient.is_own({"type": "tool_use", "id": "c1", "name": "ReadToolResult", "input": {}})
    usage = {"input_tokens": 70_000, "output_tokens": 50}
    content = [{"type": "text", "text": "Hello."}]
    response = {"type": "message", "role": "assistant", "model": "m", "content": content, "usage": usage}
    messages = [user("hello")]
    context.sync(model="m", messages=messages)
    messages += context.answer(response, {})
    view = patient.sync(model="m", messages=[*messages, user("And?")])
    assert view.tokens["total_tokens"] > 70_000
    # The response was sent once.
    assert context._state.last_response is None


def test_a_response_during_a_sync_is_sent_with_the_next_one(server: Server, name: str) -> None:
    usage = {"input_tokens": 70_000, "output_tokens": 50}
    content = [{"type": "text", "text": "Hello."}]
    response = {"type": "message", "role": "assistant", "model": "m", "content": content, "usage": usage}
    messages = [user("hello")]

    def answer(_: Any) -> None:
        if len(messages) == 1:
            messages.extend(context.answer(response, {}))

    http = httpx2.Client(**connection_settings(server.url, None), event_hooks={"request": [answer]})
    with Palimpsest(http_client=http) as client:
        context = client.session("demo", name)
        context.sync(model="m", messages=[user("hello")])
        view = context.sync(model="m", messages=[*messages, user("And?")])
    assert view.tokens["total_tokens"] > 70_000


def test_a_failing_tool_of_the_service_keeps_the_other_results(client: Palimpsest, name: str) -> None:
    context = client.session("demo", name, "anthropic_messages")
    context.tools()
    calls = [{"type": "tool_use", "id": f"c{n}", "name": it, "input": {}} for n, it in enumerate(("work", "Snip"))]
    response = {"type": "message", "role": "assistant", "model": "m", "content": calls, "usage": {}}
    # The session does not exist, so the service rejects the call of its tool.
    done, failed = context.answer(response, {"work": lambda: "done"})[-1]["content"]
    assert done["content"] == "done"
    assert failed["is_error"]
    assert "NotFoundError" in failed["content"]


def test_threads_share_a_client(client: Palimpsest, name: str) -> None:
    failed: list[Exception] = []

    def work(number: int) -> None:
        context = client.session("demo", f"{name}.{number}")
        try:
            for count in (2, 4, 6):
                assert context.sync(model="m", messages=turns(count, words=10)).sendable
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
