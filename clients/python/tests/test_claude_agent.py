"""The `SessionStore` with the conformance suite of the Claude Agent SDK, and with Claude Code itself."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ResultMessage,
    SessionKey,
    fork_session_via_store,
    get_session_messages_from_store,
    list_sessions_from_store,
    project_key_for_directory,
    query,
)
from claude_agent_sdk.testing import run_session_store_conformance

from palimpsest import Palimpsest
from palimpsest.claude_agent import PalimpsestSessionStore
from world import LOG, Provider

# The SDK leaves the pipes of Claude Code to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::DeprecationWarning"
)

KEY: SessionKey = {"project_key": "-home-ada-builds", "session_id": str(uuid.uuid4())}
SUBAGENT: SessionKey = {**KEY, "subpath": "subagents/agent-1"}


def entry(role: str, content: Any, **fields: Any) -> Any:
    message = {"role": role, "content": content, **fields.pop("message", {})}
    return {"type": role, "uuid": str(uuid.uuid4()), "parentUuid": None, "message": message, **fields}


def results(*contents: Any) -> list[Any]:
    return [{"type": "tool_result", "tool_use_id": "t1", **content} for content in contents]


RESPONSE = {"id": "msg_1", "type": "message", "model": "claude-fake", "stop_reason": None, "usage": {"input_tokens": 3}}
CALL = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"b": 1.0, "a": None}, "caller": {"type": "direct"}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgp="}}
ENTRIES: list[Any] = [
    {"type": "queue-operation", "operation": "enqueue", "content": "Why?"},
    entry("user", "Why did the build fail?", timestamp="2026-01-31T12:00:00.000Z", cwd="/home/ada"),
    entry("user", "<local-command-caveat>", isMeta=True),
    entry("assistant", [{"type": "thinking", "thinking": "", "signature": "abc"}], message=RESPONSE),
    entry("assistant", [{"type": "text", "text": "", "citations": None}], message=RESPONSE, requestId="req_1"),
    entry("assistant", [CALL], message=RESPONSE),
    entry("user", results({"content": LOG}), toolUseResult={"stdout": "short", "interrupted": False}),
    # The result of Claude Code in the entry is too large for the attributes of a message.
    entry("user", results({"content": LOG}), toolUseResult={"stdout": LOG}),
    entry("user", results({"content": [{"type": "text", "text": "a"}, IMAGE], "is_error": True})),
    entry("user", results({"content": None}, {"content": ""}, {}, {"content": [{"type": "text", "text": None}]})),
    entry("user", [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, IMAGE]),
    entry("user", [{"type": "redacted_thinking", "data": "x"}, {"type": "unknown", "n": 12345678901234567890}]),
    entry("user", ""),
    entry("user", []),
    entry("user", "half of a surrogate pair \ud83d"),
    entry("user", [{"type": "text", "text": "\ud83d"}], note="\ud83d"),
    entry("user", "another author", message={"role": "system"}),
    {"type": "user", "message": "no message"},
    {"type": "summary", "summary": "The build 😀", "leafUuid": "x", "n": [1.0, 1e300, None, {}]},
]


@pytest.fixture
def store(client: Palimpsest, name: str) -> PalimpsestSessionStore:
    return PalimpsestSessionStore(name[-32:].lstrip("_"), client=client)


async def test_the_conformance_suite_of_the_sdk_passes(client: Palimpsest) -> None:
    await run_session_store_conformance(lambda: PalimpsestSessionStore(f"store-{uuid.uuid4().hex}", client=client))


async def test_entries_are_returned_equal(store: PalimpsestSessionStore) -> None:
    await store.append(KEY, ENTRIES[:5])
    await store.append(KEY, ENTRIES[5:])
    # A batch that is sent again is stored once, also if it continues with new entries.
    await store.append(KEY, [it for it in ENTRIES if "uuid" in it])
    changed: Any = {**ENTRIES[2], "message": {"role": "user", "content": "changed"}}
    await store.append(KEY, [ENTRIES[1], changed])
    assert await store.load(KEY) == ENTRIES
    for single in ENTRIES:
        key: SessionKey = {"project_key": "p", "session_id": str(uuid.uuid4())}
        await store.append(key, [single])
        assert await store.load(key) == [single]


async def test_the_conversation_is_one_of_the_service(store: PalimpsestSessionStore) -> None:
    await store.append(KEY, ENTRIES)
    session = store.session(KEY)
    assert session.get()["first_prompt"] == "Why did the build fail?"
    assert next(session.search("disk full"))["role"] == "user"
    thinking = next(it for it in session.messages() if "thinking" in str(it["messages"]))
    assert thinking["metadata"]["model"] == "claude-fake"
    assert thinking["metadata"]["provider_message_id"] == "msg_1"


async def test_large_transcripts_have_pages(store: PalimpsestSessionStore) -> None:
    entries = [entry("user", f"{number} " + "x" * 3_000) for number in range(1_100)]
    entries += [entry("user", "y" * 4_000_000), {"type": "file-history-snapshot", "data": "z" * 4_000_000}]
    await store.append(KEY, entries)
    assert await store.load(KEY) == entries


async def test_concurrent_appends_are_all_in_the_summary(store: PalimpsestSessionStore) -> None:
    batches = [[entry("user", f"{number}", timestamp="2026-01-31T12:00:00.000Z")] for number in range(6)]
    await asyncio.gather(*(store.append(KEY, it) for it in batches))
    loaded = await store.load(KEY)
    assert sorted(str(it) for it in loaded or []) == sorted(str(it) for batch in batches for it in batch)
    summaries = await store.list_session_summaries(KEY["project_key"])
    listed = await store.list_sessions(KEY["project_key"])
    assert [it["mtime"] for it in summaries] == [it["mtime"] for it in listed]


async def test_a_session_of_a_subagent_can_come_first(store: PalimpsestSessionStore) -> None:
    await store.append(SUBAGENT, ENTRIES[:2])
    assert await store.load(KEY) is None
    assert await store.list_sessions(KEY["project_key"]) == []
    assert await store.list_subkeys({"project_key": KEY["project_key"], "session_id": KEY["session_id"]}) == [
        "subagents/agent-1"
    ]
    await store.append(KEY, ENTRIES)
    assert await store.load(KEY) == ENTRIES
    await store.delete(KEY)
    await store.append(KEY, ENTRIES[:2])
    assert await store.load(SUBAGENT) is None


async def test_claude_code_resumes_from_the_store(
    store: PalimpsestSessionStore, provider: Provider, model: str, tmp_path: Path
) -> None:
    bash = {"name": "Bash", "input": {"command": "seq 1 9", "description": "Counts"}}
    provider.script(model, {"text": "I look.", "calls": [bash]}, {"text": "Its disk was full."}, {"text": "Yes."})
    work = tmp_path / "work"
    work.mkdir()

    def options(machine: str, **fields: Any) -> ClaudeAgentOptions:
        home = tmp_path / machine
        home.mkdir()
        env = {"ANTHROPIC_BASE_URL": provider.url, "ANTHROPIC_API_KEY": "key", "HOME": str(home), "IS_SANDBOX": "1"}
        env |= {"CLAUDE_CONFIG_DIR": str(home), "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        env |= {"DISABLE_AUTOUPDATER": "1"}
        return ClaudeAgentOptions(
            model=model, session_store=store, env=env, cwd=work, permission_mode="bypassPermissions", **fields
        )

    async def ask(prompt: str, options: ClaudeAgentOptions) -> ResultMessage:
        messages = [it async for it in query(prompt=prompt, options=options)]
        assert isinstance(messages[-1], ResultMessage)
        return messages[-1]

    first = await ask("Why did the build fail?", options("first"))
    assert first.result == "Its disk was full."
    key: SessionKey = {"project_key": project_key_for_directory(work), "session_id": first.session_id}
    lines = next((tmp_path / "first" / "projects").rglob("*.jsonl")).read_text().splitlines()
    written = [json.loads(line) for line in lines]
    stored = await store.load(key)
    assert stored is not None
    # Claude Code does not report the lines that it writes while it ends.
    assert [it for it in written if it in stored] == stored
    # Another machine has no file of the session.
    second = await ask("Are you sure?", options("second", resume=first.session_id))
    assert (second.result, second.session_id) == ("Yes.", first.session_id)
    asked = provider.requests(model)[-1]["body"]["messages"]
    assert "Why did the build fail?" in str(asked)
    assert "seq 1 9" in str(asked)
    listed = await list_sessions_from_store(store, directory=str(work))
    assert [it.first_prompt for it in listed] == ["Why did the build fail?"]
    read = await get_session_messages_from_store(store, first.session_id, directory=str(work))
    assert "Are you sure?" in str(read[-2])
    fork = await fork_session_via_store(store, first.session_id, directory=str(work))
    third = await ask("And now?", dataclasses.replace(options("third"), resume=fork.session_id))
    assert third.session_id == fork.session_id
    # Collected here, so that no other test receives the warnings.
    gc.collect()
