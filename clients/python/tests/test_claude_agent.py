"""The `SessionStore` with the conformance suite of the Claude Agent SDK, and with Claude Code itself."""

from __future__ import annotations

import asyncio
import gc
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import (
    ClaudeAgentOptions,
    Message,
    ResultMessage,
    SessionKey,
    StreamEvent,
    fold_session_summary,
    fork_session_via_store,
    get_session_messages_from_store,
    list_sessions_from_store,
    project_key_for_directory,
    query,
    rename_session_via_store,
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


async def test_a_large_summary_is_returned(store: PalimpsestSessionStore, tmp_path: Path) -> None:
    directory = str(tmp_path)
    key: SessionKey = {"project_key": project_key_for_directory(directory), "session_id": str(uuid.uuid4())}
    await store.append(key, ENTRIES)
    store.session(key).update(attributes={**store.session(key).get()["attributes"], "team": "builds"})

    async def rename(title: str) -> list[Any]:
        await rename_session_via_store(store, key["session_id"], title, directory=directory)
        listed = await list_sessions_from_store(store, directory=directory)
        assert [it.custom_title for it in listed] == [title]
        return list(await store.list_session_summaries(key["project_key"]))

    # The attributes contain a summary of 48,000 characters. The SDK reads the transcript if the summary is larger.
    sizes = [20_000, 40_000, 10, 60_000, 50_000, 30_000]
    assert [len(await rename("t" * it)) for it in sizes] == [1, 1, 1, 0, 0, 1]
    # The attributes of the caller count too.
    notes = {f"note-{it}": "n" * 10_000 for it in range(3)}
    store.session(key).update(attributes={**store.session(key).get()["attributes"], **notes})
    assert [len(await rename("t" * it)) for it in (10_000, 40_000)] == [1, 0]
    summary = (await rename("The build"))[0]
    entries = await store.load(key)
    assert entries is not None
    assert summary["data"] == fold_session_summary(None, key, entries)["data"]
    attributes = store.session(key).get()["attributes"]
    assert attributes["team"] == "builds"
    assert len(attributes) == 6


async def test_entries_that_continue_a_removed_one_leave_with_it(store: PalimpsestSessionStore) -> None:
    entries: list[Any] = []

    def add(entry: Any) -> str:
        entries.append({"uuid": str(uuid.uuid4()), **entry, "parentUuid": entries[-1]["uuid"] if entries else None})
        return str(entries[-1]["uuid"])

    add(entry("user", "question 0"))
    answer = add(entry("assistant", [{"type": "text", "text": "answer 0"}]))
    add({"type": "system", "subtype": "turn_duration"})
    question = add(entry("user", "question 1"))
    add({"type": "attachment", "attachment": {"type": "date"}})
    # The service shows no message with a field that is null.
    add(entry("user", [{"type": "text", "text": "more", "note": None}]))
    last = add(entry("assistant", [{"type": "text", "text": "answer 1"}]))
    prompts: list[Any] = [{"type": "last-prompt", "lastPrompt": it, "leafUuid": it} for it in (answer, last)]
    title: Any = {"type": "custom-title", "customTitle": "The build"}
    await store.append(KEY, [*entries, *prompts, title])
    session = store.session(KEY)
    rewound = session.rewind(before_message_id=question)
    assert await store.load(KEY) == [*entries[:3], prompts[0], title]
    session.restore(rewound["revision"] - 1)
    assert await store.load(KEY) == [*entries, *prompts, title]
    session.rewind(to_message_id=entries[0]["uuid"])
    assert await store.load(KEY) == [entries[0], title]
    # An agent that runs meanwhile continues the removed messages.
    continued: Any = {**entry("user", "question 2"), "parentUuid": last}
    await store.append(KEY, [continued])
    assert await store.load(KEY) == [*entries, *prompts, title, continued]


class ClaudeCode:
    """Claude Code with a store. Each run is on another machine, which has no file of the session."""

    def __init__(self, store: PalimpsestSessionStore, provider: Provider, model: str, folder: Path) -> None:
        self.store = store
        self._provider = provider
        self._model = model
        self._folder = folder
        self.work = folder / "work"
        self.work.mkdir()
        self.homes: list[Path] = []

    async def run(self, prompt: str, *, env: dict[str, str] | None = None, **options: Any) -> list[Message]:
        home = self._folder / f"home-{len(self.homes)}"
        home.mkdir()
        self.homes.append(home)
        variables = {"ANTHROPIC_BASE_URL": self._provider.url, "ANTHROPIC_API_KEY": "key", "IS_SANDBOX": "1"}
        variables |= {"HOME": str(home), "CLAUDE_CONFIG_DIR": str(home), "DISABLE_AUTOUPDATER": "1"}
        variables |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", **(env or {})}
        fields: dict[str, Any] = {"model": self._model, "session_store": self.store, "cwd": self.work, **options}
        run = query(
            prompt=prompt, options=ClaudeAgentOptions(env=variables, permission_mode="bypassPermissions", **fields)
        )
        return [message async for message in run]

    async def ask(self, prompt: str, **options: Any) -> ResultMessage:
        last = (await self.run(prompt, **options))[-1]
        assert isinstance(last, ResultMessage)
        assert not last.is_error, last
        return last

    def key(self, session_id: str) -> SessionKey:
        return {"project_key": project_key_for_directory(self.work), "session_id": session_id}

    async def load(self, session_id: str) -> list[Any]:
        loaded: list[Any] = await self.store.load(self.key(session_id)) or []
        return loaded

    def written(self) -> list[Any]:
        """Returns the entries that the first run has written. The files of other runs are removed."""
        lines = next((self.homes[0] / "projects").rglob("*.jsonl")).read_text().splitlines()
        return [json.loads(line) for line in lines]

    def sent(self) -> list[list[Any]]:
        """Returns the blocks of each request, which the provider has accepted."""
        requests = self._provider.requests(self._model)
        assert {it["status"] for it in requests} == {200}, [it for it in requests if it["status"] != 200]
        sent = []
        for request in requests:
            contents = [it["content"] for it in request["body"]["messages"]]
            blocks = [[{"type": "text", "text": it}] if isinstance(it, str) else it for it in contents]
            sent.append([{**block, "cache_control": None} for content in blocks for block in content])
        return sent


@pytest.fixture
def code(store: PalimpsestSessionStore, provider: Provider, model: str, tmp_path: Path) -> Iterator[ClaudeCode]:
    yield ClaudeCode(store, provider, model, tmp_path)
    # Collected here, so that no other test receives the warnings.
    gc.collect()


def check_written(code: ClaudeCode, stored: list[Any]) -> None:
    """Checks that the store has the entries of the first run, in their order."""
    written = code.written()
    assert stored
    assert all(it in written for it in stored)
    # Claude Code does not report the lines that it writes while it ends. Some are equal to earlier ones without an id.
    assert [it for it in written if "uuid" in it and it in stored] == [it for it in stored if "uuid" in it]


def count_to(last: int) -> dict[str, Any]:
    return {"name": "Bash", "input": {"command": f"seq 1 {last}", "description": "Counts"}}


def tool_blocks(blocks: list[Any]) -> list[Any]:
    """Returns the calls and results in a fixed order. Parallel calls end in any order."""
    found = [it for it in blocks if it["type"] in ("tool_use", "tool_result")]
    return sorted(found, key=lambda it: str(it.get("id") or it.get("tool_use_id")) + it["type"])


async def test_claude_code_resumes_from_the_store(code: ClaudeCode, provider: Provider, model: str) -> None:
    calls = {"text": "I look.", "calls": [count_to(9)]}
    provider.script(model, calls, {"text": "Its disk was full."}, {"text": "Yes."})
    first = await code.ask("Why did the build fail?")
    assert first.result == "Its disk was full."
    stored = await code.load(first.session_id)
    check_written(code, stored)
    second = await code.ask("Are you sure?", resume=first.session_id)
    assert (second.result, second.session_id) == ("Yes.", first.session_id)
    assert "Why did the build fail?" in str(code.sent()[-1])
    assert "seq 1 9" in str(code.sent()[-1])
    store, directory = code.store, str(code.work)
    listed = await list_sessions_from_store(store, directory=directory)
    assert [it.first_prompt for it in listed] == ["Why did the build fail?"]
    read = await get_session_messages_from_store(store, first.session_id, directory=directory)
    assert "Are you sure?" in str(read[-2])
    fork = await fork_session_via_store(store, first.session_id, directory=directory)
    third = await code.ask("And now?", resume=fork.session_id)
    assert third.session_id == fork.session_id


@pytest.mark.parametrize("flush", ["batched", "eager"])
async def test_parallel_calls_and_streaming(code: ClaudeCode, provider: Provider, model: str, flush: str) -> None:
    calls = [count_to(9), count_to(19), count_to(29)]
    provider.script(model, {"text": "I look.", "calls": calls}, {"text": "Its disk was full."}, {"text": "Yes."})
    messages = await code.run("Why?", include_partial_messages=True, session_store_flush=flush)
    events = [it.event for it in messages if isinstance(it, StreamEvent)]
    deltas = [it["delta"] for it in events if it["type"] == "content_block_delta"]
    assert "".join(it.get("text", "") for it in deltas) == "I look.Its disk was full."
    session_id = next(it.session_id for it in messages if isinstance(it, ResultMessage))
    stored = await code.load(session_id)
    # The parts of a stream are no entries.
    check_written(code, stored)
    session = code.store.session(code.key(session_id))
    listed = [it for it in session.messages() if it["visibility"] == "visible"]
    shown = [block for it in listed for message in it["messages"] for block in message["content"]]
    assert [it["input"] for it in shown if it["type"] == "tool_use"] == [it["input"] for it in calls]
    results = [it["tool_use_id"] for it in shown if it["type"] == "tool_result"]
    assert sorted(results) == sorted(it["id"] for it in shown if it["type"] == "tool_use")
    await code.ask("Are you sure?", resume=session_id)
    sent = code.sent()
    assert tool_blocks(sent[2]) == tool_blocks(sent[1])
    assert len(tool_blocks(sent[2])) == 6


def boundaries(entries: list[Any]) -> list[Any]:
    return [it["compactMetadata"]["trigger"] for it in entries if it.get("subtype") == "compact_boundary"]


SUMMARY = "Its disk was full, as the log says."


async def test_a_compaction_is_whole_in_the_transcript_and_can_be_undone(
    code: ClaudeCode, provider: Provider, model: str
) -> None:
    provider.script(model, {"calls": [count_to(9)]}, *[{"text": f"answer {number}"} for number in range(2)])
    session_id = (await code.ask("question 0")).session_id
    await code.ask("question 1", resume=session_id)
    before = await code.load(session_id)
    provider.script(model, {"text": f"<summary>{SUMMARY}</summary>"}, *[{"text": "Yes."}] * 4)
    await code.ask("/compact", resume=session_id)
    compacted = await code.load(session_id)
    assert compacted[: len(before)] == before
    assert boundaries(compacted) == ["manual"]
    session = code.store.session(code.key(session_id))
    # The service shows the summary, and the messages before it.
    assert [it["role"] for it in session.search(SUMMARY)] == ["user"]
    assert next(session.search("question 0"))["role"] == "user"
    # A resume sends the summary in place of the messages.
    await code.ask("after the compaction", resume=session_id)
    assert SUMMARY in str(code.sent()[-1])
    assert "question 0" not in str(code.sent()[-1])
    # The undo removes the summary, and the boundary before it, with all that follows.
    continued = await code.load(session_id)
    summary = next(it for it in continued if it.get("isCompactSummary"))
    rewound = session.rewind(before_message_id=summary["uuid"])
    undone = await code.load(session_id)
    assert [it for it in undone if "uuid" in it] == [it for it in before if "uuid" in it]
    # The undo is undone.
    session.restore(rewound["revision"] - 1)
    assert await code.load(session_id) == continued
    await code.ask("after the restore", resume=session_id)
    assert SUMMARY in str(code.sent()[-1])
    session.rewind(before_message_id=summary["uuid"])
    await code.ask("after the undo", resume=session_id)
    last = code.sent()[-1]
    assert SUMMARY not in str(last)
    assert [it in str(last) for it in ("question 0", "answer 1", "after the undo")] == [True] * 3
    assert "after the restore" not in str(last)
    assert tool_blocks(last) == tool_blocks(code.sent()[2]) != []


async def test_a_compaction_within_a_run_is_resumed(code: ClaudeCode, provider: Provider, model: str) -> None:
    full = {"input": 95_000, "output": 10}
    calls: list[dict[str, Any]] = [{"calls": [count_to(9), count_to(19)]}, {"calls": [count_to(29)]}]
    calls += [{"calls": [count_to(39)], "usage": full}]
    provider.script(model, *calls, {"text": f"<summary>{SUMMARY}</summary>"}, *[{"text": "It was full."}] * 3)
    first = await code.ask("Why?", env={"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "100000"})
    stored = await code.load(first.session_id)
    assert boundaries(stored) == ["auto"]
    check_written(code, stored)
    await code.ask("Are you sure?", resume=first.session_id)
    sent = code.sent()
    # The last call is kept beside the summary, by the run and by its resume.
    assert [SUMMARY in str(it) for it in sent] == [False] * 4 + [True] * 2
    assert tool_blocks(sent[5]) == tool_blocks(sent[4])
    assert [it["input"] for it in tool_blocks(sent[5]) if "input" in it] == [count_to(39)["input"]]
    session = code.store.session(code.key(first.session_id))
    summary = next(it for it in stored if it.get("isCompactSummary"))
    # Entries between the boundary and the summary leave too.
    session.rewind(before_message_id=summary["uuid"])
    await code.ask("Again?", resume=first.session_id)
    assert tool_blocks(code.sent()[-1]) == tool_blocks(sent[3] + sent[4])


async def test_a_rewound_turn_is_not_resumed(code: ClaudeCode, provider: Provider, model: str) -> None:
    provider.script(model, *[{"text": f"answer {number}"} for number in range(3)])
    session_id = (await code.ask("question 0")).session_id
    await code.ask("question 1", resume=session_id)
    session = code.store.session(code.key(session_id))
    question = next(it for it in session.search("question 1") if it["visibility"] == "visible")
    session.rewind(before_message_id=question["block"]["message_id"])
    store, directory = code.store, str(code.work)
    read = await get_session_messages_from_store(store, session_id, directory=directory)
    assert [it.message["content"] for it in read if it.type == "user"] == ["question 0"]
    fork = await fork_session_via_store(store, session_id, directory=directory)
    await code.ask("question 2", resume=fork.session_id)
    assert ["question" in str(it) and "answer 0" in str(it) for it in code.sent()] == [False, True, True]
    assert "question 1" not in str(code.sent()[-1])
    # The session itself still has the messages.
    assert len(list(session.search("question 1"))) > 0
