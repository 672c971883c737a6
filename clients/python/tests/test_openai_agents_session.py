"""The `Session` inside of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from agents import (
    Agent,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    RunState,
    SessionSettings,
    function_tool,
    handoff,
)
from agents.extensions.handoff_filters import remove_all_tools
from agents.memory import Session

from palimpsest import NotFoundError, Palimpsest
from palimpsest.openai_agents import PalimpsestSession
from world import ANSWER, LOG, Provider, Server

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")

# Items of the kinds that the SDK stores, with fields that are null, omitted or unknown.
ITEMS: list[Any] = [
    {"role": "user", "content": "Why?"},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Why?"}]},
    {"role": "user", "content": "", "unknown": {"a": [1.5, None]}},
    {"role": "developer", "content": "Be brief."},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc", "status": None},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": '{"a":  1}', "status": None},
    {"type": "function_call_output", "call_id": "c1", "output": LOG},
    {"type": "local_shell_call_output", "call_id": "c2", "output": "ok"},
    {"type": "custom_tool_call", "call_id": "c3", "name": "f", "input": "x"},
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "abc"},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Hi.", "annotations": [], "logprobs": []}],
    },
]


@function_tool
def read_log() -> str:
    """Reads the log of the build."""
    return LOG


@function_tool(needs_approval=True)
def delete_log() -> str:
    """Deletes the log of the build."""
    return "deleted"


@pytest.fixture
def session(client: Palimpsest, name: str) -> PalimpsestSession:
    return PalimpsestSession("demo", name, client=client)


def agent_of(session: PalimpsestSession, client: openai.AsyncOpenAI, model: str, **options: Any) -> Agent[Any]:
    responses = OpenAIResponsesModel(model=model, openai_client=client)
    return session.with_tools(Agent[Any](name="agent", model=responses, tools=[read_log, delete_log], **options))


def config_of(session: PalimpsestSession, **options: Any) -> RunConfig:
    return session.run_config(tracing_disabled=True, **options)


def sent(provider: Provider, model: str) -> list[str]:
    requests = provider.requests(model)
    assert {it["status"] for it in requests} == {200}, [it for it in requests if it["status"] != 200]
    return [str(it["body"]["input"]) for it in requests]


async def test_items_are_returned_unchanged(client: Palimpsest, session: PalimpsestSession) -> None:
    assert isinstance(session, Session)
    assert await session.get_items() == []
    assert await session.pop_item() is None
    await session.add_items(ITEMS)
    # Another process has the same history.
    other = PalimpsestSession("demo", session.session_id, client=client)
    assert await other.get_items() == ITEMS
    assert await other.get_items(2) == ITEMS[-2:]
    assert await other.get_items(0) == []
    for item in reversed(ITEMS):
        assert await other.pop_item() == item
    assert await session.get_items() == []
    await session.add_items(ITEMS[:1])
    await session.clear_session()
    assert await session.get_items() == []
    await session.add_items(ITEMS)
    assert await session.get_items() == ITEMS


async def test_items_that_no_provider_accepts_are_stored(session: PalimpsestSession) -> None:
    items: list[Any] = [{"type": "message", "content": "without a role"}, {"role": "tool", "content": "x"}, ITEMS[0]]
    await session.add_items(items)
    assert await session.get_items() == items


async def test_a_long_history_has_pages(session: PalimpsestSession) -> None:
    items: list[Any] = [{"role": "user", "content": f"{number} " + "x" * 3_000} for number in range(1_200)]
    await session.add_items(items)
    assert await session.get_items() == items
    assert await session.get_items(1_100) == items[-1_100:]


async def test_the_limit_of_the_settings_is_the_default(client: Palimpsest, name: str) -> None:
    settings = SessionSettings(limit=2)
    session = PalimpsestSession("demo", name, client=client, session_settings=settings)
    await session.add_items(ITEMS)
    assert await session.get_items() == ITEMS[-2:]
    assert await session.get_items(3) == ITEMS[-3:]


async def test_concurrent_pops_return_each_item_once(session: PalimpsestSession) -> None:
    items: list[Any] = [{"role": "user", "content": str(number)} for number in range(8)]
    await session.add_items(items)
    popped: list[Any] = await asyncio.gather(*(session.pop_item() for _ in items))
    assert sorted(it["content"] for it in popped) == [it["content"] for it in items]


async def test_a_cancelled_change_ends_before_the_caller_continues(session: PalimpsestSession) -> None:
    task = asyncio.create_task(session.add_items(ITEMS[:1]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await session.get_items() == ITEMS[:1]


async def test_the_history_is_whole_and_the_model_receives_the_view(
    session: PalimpsestSession, async_gpt: openai.AsyncOpenAI, provider: Provider, model: str
) -> None:
    provider.script(
        model,
        {"text": "I look.", "calls": [{"name": "read_log"}, {"name": "read_log"}]},
        {"calls": [{"name": "SearchTranscript", "input": {"pattern": "disk full"}}, {"name": "read_log"}]},
        {"text": ANSWER},
        {"text": "Yes."},
    )
    agent, config = agent_of(session, async_gpt, model), config_of(session)
    result = await Runner.run(agent, "Why did the build fail?", session=session, run_config=config)
    assert result.final_output == ANSWER
    streamed = Runner.run_streamed(agent, "Are you sure?", session=session, run_config=config)
    async for _ in streamed.stream_events():
        pass
    arrays = sent(provider, model)
    assert ["palimpsest://" in it for it in arrays] == [False, True, True, True]
    assert ["disk full" in it for it in arrays] == [False, False, True, True]
    history: list[Any] = await session.get_items()
    assert sum(it.get("output") == LOG for it in history) == 3
    assert history[0] == {"role": "user", "content": "Why did the build fail?"}
    assert "Yes." in json.dumps(history[-1])


async def test_compaction_and_undo(
    session: PalimpsestSession, async_gpt: openai.AsyncOpenAI, provider: Provider, model: str
) -> None:
    provider.script(model, *[{"text": f"answer {number}"} for number in range(7)])
    agent, config = agent_of(session, async_gpt, model), config_of(session)
    for number in range(5):
        text = f"question {number} " + "some words " * 500
        await Runner.run(agent, text, session=session, run_config=config)
    session.session.compact()
    await Runner.run(agent, "after the compaction", session=session, run_config=config)
    assert session.session.undo()
    await Runner.run(agent, "after the undo", session=session, run_config=config)
    sizes = [len(it) for it in sent(provider, model)]
    assert sizes[5] < sizes[4] < sizes[6]
    assert len(await session.get_items()) == 14


async def test_an_interrupted_run_continues_from_its_state(
    session: PalimpsestSession, async_gpt: openai.AsyncOpenAI, provider: Provider, model: str
) -> None:
    provider.script(model, {"calls": [{"name": "read_log"}, {"name": "delete_log"}]}, {"text": "It is deleted."})
    agent, config = agent_of(session, async_gpt, model), config_of(session)
    result = await Runner.run(agent, "Delete the log.", session=session, run_config=config)
    assert len(result.interruptions) == 1
    state = await RunState.from_string(agent, result.to_state().to_string())
    state.approve(state.get_interruptions()[0])
    resumed = await Runner.run(agent, state, session=session, run_config=config)
    assert resumed.final_output == "It is deleted."
    assert "deleted" in sent(provider, model)[1]
    kinds = [str(it.get("type", "message")) for it in await session.get_items()]
    assert sorted(kinds) == sorted(["message", *["function_call", "function_call_output"] * 2, "message"])


async def test_filters_of_handoffs_and_inputs_leave_the_history_alone(
    session: PalimpsestSession, async_gpt: openai.AsyncOpenAI, provider: Provider, model: str
) -> None:
    calls = [{"name": "read_log"}], [{"name": "transfer_to_agent"}]
    provider.script(model, *[{"calls": it} for it in calls], {"text": ANSWER}, {"text": "Yes."})
    second = agent_of(session, async_gpt, model)
    first = agent_of(session, async_gpt, model, handoffs=[handoff(second, input_filter=remove_all_tools)])
    await Runner.run(first, "Why did the build fail?", session=session, run_config=config_of(session))
    before: list[Any] = await session.get_items()
    assert sum(it.get("output") == LOG for it in before) == 1
    config = config_of(session, session_input_callback=lambda history, new: [*history[-1:], *new])
    await Runner.run(second, "Are you sure?", session=session, run_config=config)
    arrays = sent(provider, model)
    assert "read_log" not in arrays[2]
    assert "Why did" not in arrays[3]
    after = await session.get_items()
    assert after[: len(before)] == before
    assert len(after) == len(before) + 2


async def test_both_sessions_are_deleted(client: Palimpsest, session: PalimpsestSession) -> None:
    await session.add_items(ITEMS)
    names = [session.session.name, f"{session.session.name}.history"]
    listed = [it["name"] for it in client.sessions("demo", **{"filter.main_only": True})]
    assert names[0] in listed
    assert names[1] not in listed
    await session.clear_session()
    for name in names:
        with pytest.raises(NotFoundError):
            client.session("demo", name.rsplit("/", 1)[1]).get()


async def test_loaded_tools_need_no_further_request(server: Server, name: str) -> None:
    with Palimpsest(server.url) as client:
        session = PalimpsestSession("demo", name, client=client)
        loaded = await session.load_tools()
    # The connection is closed, so a request fails.
    with_tools = session.with_tools(Agent(name="agent"))
    assert [it.name for it in with_tools.tools] == [it.name for it in loaded] != []
