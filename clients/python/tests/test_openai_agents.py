"""The filter and the tools inside of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest
from agents import (
    Agent,
    ComputerTool,
    ItemHelpers,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIProvider,
    OpenAIResponsesModel,
    RunConfig,
    RunContextWrapper,
    Runner,
    SQLiteSession,
    Usage,
    function_tool,
)
from agents.run_config import CallModelData, ModelInputData
from agents.tool_context import ToolContext

from cancelled import check_cancelled_run
from palimpsest import Palimpsest
from palimpsest._openai_agents_usage import LastUsage
from palimpsest.openai_agents import PalimpsestContext, PalimpsestSession
from world import ANSWER, FOUND, LOG, TURNS, USAGE, Provider, fill

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@function_tool
def read_log() -> str:
    """Reads the log of the build."""
    return LOG


def agent_of(
    client: Palimpsest, name: str, gpt: openai.AsyncOpenAI, model: str
) -> tuple[PalimpsestContext, Agent[Any], RunConfig]:
    context = PalimpsestContext("demo", name, client=client)
    responses = OpenAIResponsesModel(model=model, openai_client=gpt)
    agent = Agent[Any](name="agent", instructions="Be brief.", model=responses, tools=[read_log])
    return context, context.with_tools(agent), context.run_config(RunConfig(tracing_disabled=True))


def sent(provider: Provider, model: str) -> list[str]:
    requests = provider.requests(model)
    assert {it["status"] for it in requests} == {200}
    return [str(it["body"]["input"]) for it in requests]


def check(provider: Provider, model: str, items: Any) -> None:
    arrays = sent(provider, model)
    assert ["palimpsest://" in it for it in arrays] == [False, True, True]
    assert ["disk full" in it for it in arrays] == [False, False, True]
    assert sum(it.get("output") == LOG for it in items) == 3


async def test_parallel_calls_and_read_back(
    client: Palimpsest, async_gpt: openai.AsyncOpenAI, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, *TURNS)
    _, agent, config = agent_of(client, name, async_gpt, model)
    result = await Runner.run(agent, "Why did the build fail?", run_config=config)
    assert result.final_output == ANSWER
    check(provider, model, result.to_input_list())


async def test_the_tools_of_the_service_read_the_lane(
    client: Palimpsest, async_gpt: openai.AsyncOpenAI, provider: Provider, name: str, model: str
) -> None:
    fill(client.session("demo", name))
    provider.script(model, *TURNS)
    _, agent, config = agent_of(client, name, async_gpt, model)
    await Runner.run(agent, "Why did the build fail?", run_config=config)
    assert FOUND in sent(provider, model)[2]


@pytest.mark.parametrize("kind", [PalimpsestContext, PalimpsestSession])
async def test_chat_models_read_earlier_responses(
    client: Palimpsest, async_gpt: openai.AsyncOpenAI, provider: Provider, name: str, model: str, kind: Any
) -> None:
    provider.script(model, *TURNS, {"text": "Yes."})
    context: PalimpsestContext = kind("demo", name, client=client)
    chat = OpenAIChatCompletionsModel(model=model, openai_client=async_gpt)
    agent = context.with_tools(Agent[Any](name="agent", model=chat, tools=[read_log]))
    config = context.run_config(RunConfig(tracing_disabled=True))
    history = context if isinstance(context, PalimpsestSession) else None
    first = await Runner.run(agent, "Why did the build fail?", session=history, run_config=config)
    assert first.final_output == ANSWER
    sure: Any = "Sure?" if history else [*first.to_input_list(), {"role": "user", "content": "Sure?"}]
    second = await Runner.run(agent, sure, session=history, run_config=config)
    assert second.final_output == "Yes."
    requests = provider.requests(model)
    assert {it["status"] for it in requests} == {200}
    answers = [it for it in requests[-1]["body"]["messages"] if it["role"] == "assistant"]
    assert [it.get("content") for it in answers] == ["I look.", None, ANSWER]
    assert "disk full" in str(requests[-1]["body"]["messages"])


@pytest.mark.parametrize("include", [True, False])
async def test_reasoning_items_with_their_encrypted_content_stay(
    client: Palimpsest, async_gpt: openai.AsyncOpenAI, provider: Provider, name: str, include: bool
) -> None:
    # Other models of the provider do not reason.
    model = f"gpt-5-{name}"
    provider.script(model, {**TURNS[0], "thinking": "Hm."}, TURNS[2])
    _, agent, config = agent_of(client, name, async_gpt, model)
    if include:
        agent.model_settings = ModelSettings(response_include=["reasoning.encrypted_content"])
    await Runner.run(agent, "Why did the build fail?", run_config=config)
    kinds = [it.get("type") for it in provider.requests(model)[1]["body"]["input"]]
    results = ["function_call_output"] * 2
    assert kinds == ["message", *(["reasoning"] if include else []), "message", *["function_call"] * 2, *results]


async def test_an_agent_changes_between_the_apis(
    client: Palimpsest, async_gpt: openai.AsyncOpenAI, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, *[{"text": f"answer {number}"} for number in range(3)])
    _, agent, config = agent_of(client, name, async_gpt, model)
    chat = agent.clone(model=OpenAIChatCompletionsModel(model=model, openai_client=async_gpt))
    items: list[Any] = []
    for kind in (agent, chat, agent):
        items = [*items, {"role": "user", "content": "Hello."}]
        items = (await Runner.run(kind, items, run_config=config)).to_input_list()
    requests = provider.requests(model)
    assert {it["status"] for it in requests} == {200}
    assert "answer 0" in str(requests[1]["body"]["messages"])
    # The id that the view gets for Chat Completions is not sent to the Responses API.
    assert "answer 1" in str(requests[2]["body"]["input"])
    assert "__fake_id__" not in str(requests[2]["body"])


async def test_streaming(
    client: Palimpsest, async_gpt: openai.AsyncOpenAI, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, *TURNS)
    _, agent, config = agent_of(client, name, async_gpt, model)
    result = Runner.run_streamed(agent, "Why did the build fail?", run_config=config)
    texts = []
    async for event in result.stream_events():
        if event.type == "run_item_stream_event" and event.item.type == "message_output_item":
            texts.append(ItemHelpers.text_message_output(event.item))
    assert texts == ["I look.", ANSWER]
    check(provider, model, result.to_input_list())


async def test_compaction_and_undo_with_a_session_of_the_sdk(
    client: Palimpsest, async_gpt: openai.AsyncOpenAI, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, *[{"text": f"answer {number}"} for number in range(7)])
    context, agent, config = agent_of(client, name, async_gpt, model)
    session = context.session
    history = SQLiteSession(name)
    for number in range(5):
        await Runner.run(agent, f"question {number} " + "some words " * 500, session=history, run_config=config)
    session.compact()
    await Runner.run(agent, "after the compaction", session=history, run_config=config)
    assert session.undo()
    await Runner.run(agent, "after the undo", session=history, run_config=config)
    history.close()
    sizes = [len(it) for it in sent(provider, model)]
    assert sizes[5] < sizes[4] < sizes[6]


async def test_the_service_counts_the_tools_and_the_usage(
    client: Palimpsest, async_gpt: openai.AsyncOpenAI, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, {**TURNS[0], "usage": USAGE}, TURNS[2], {"text": "Yes."})
    context, agent, config = agent_of(client, name, async_gpt, model)
    session = context.session
    budgets: list[dict[str, Any]] = []

    show: Any = config.call_model_input_filter

    async def observed(data: Any) -> Any:
        filtered = await show(data)
        budgets.append(session.get())
        return filtered

    agent.tools[0] = replace(read_log, description="x " * 9_000)
    agent.handoffs.append(Agent(name="helper", handoff_description="y " * 9_000))
    config.call_model_input_filter = observed
    first = await Runner.run(agent, "Why did the build fail?", run_config=config)
    # Without the tools, the first input has few tokens.
    assert budgets[0]["budget"]["used_tokens"] > 9_000
    used = first.context_wrapper.usage.request_usage_entries
    assert budgets[1]["counts"]["reported_tokens"] == used[0].total_tokens
    # The next run sends the usage of the last response of the first one.
    await Runner.run(agent, [*first.to_input_list(), {"role": "user", "content": "Sure?"}], run_config=config)
    assert budgets[2]["counts"]["reported_tokens"] == used[0].total_tokens + used[1].total_tokens


async def test_a_cancelled_run_leaves_no_request(async_gpt: openai.AsyncOpenAI, name: str, tmp_path: Path) -> None:
    def prepare(client: Palimpsest) -> Any:
        _, agent, config = agent_of(client, name, async_gpt, "m")
        return lambda: Runner.run(agent, "Hello.", run_config=config)

    await check_cancelled_run(tmp_path / "data", name, prepare)


@pytest.mark.parametrize("place", ["run", "options", "default"])
async def test_the_service_receives_the_model_of_the_run(
    client: Palimpsest,
    async_gpt: openai.AsyncOpenAI,
    provider: Provider,
    name: str,
    model: str,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    provider.script(model, {"text": ANSWER})
    monkeypatch.setenv("OPENAI_DEFAULT_MODEL", model)
    context = PalimpsestContext("demo", name, client=client)
    agent = Agent[Any](name="agent", model=None if place == "default" else "other")
    config = RunConfig(tracing_disabled=True, model_provider=OpenAIProvider(openai_client=async_gpt))
    if place == "run":
        config.model = OpenAIResponsesModel(model=model, openai_client=async_gpt)
    options: dict[str, Any] = {"model": model} if place == "options" else {}
    await Runner.run(agent, "Hello.", run_config=context.run_config(config, **options))
    assert context.session.get()["budget"]["model"] == model


def test_a_tool_with_the_name_of_one_of_the_service(client: Palimpsest, name: str) -> None:
    agent = Agent[Any](name="agent", tools=[replace(read_log, name="Snip")])
    with pytest.raises(ValueError, match=r"names of tools of the service: Snip\."):
        PalimpsestContext("demo", name, client=client).with_tools(agent)


def test_another_filter_is_an_error(client: Palimpsest, name: str) -> None:
    context = PalimpsestContext("demo", name, client=client)
    own: Any = {"call_model_input_filter": lambda data: data.model_data}
    with pytest.raises(ValueError, match="calls both"):
        context.run_config(RunConfig(**own))
    with pytest.raises(ValueError, match="calls both"):
        context.run_config(**own)


async def test_parallel_runs_of_an_agent_read_their_lanes(
    client: Palimpsest, async_gpt: openai.AsyncOpenAI, provider: Provider, name: str, model: str
) -> None:
    search = {"calls": [{"name": "SearchTranscript", "input": {"pattern": "needle [0-9]"}}]}
    _, agent, config = agent_of(client, name, async_gpt, "other")
    agents = [agent.clone(model=OpenAIResponsesModel(model=f"{model}-{it}", openai_client=async_gpt)) for it in "12"]
    for number in "12":
        provider.script(f"{model}-{number}", search, {"text": ANSWER})
    synced: set[str] = set()
    both_synced = asyncio.Event()
    show: Any = config.call_model_input_filter

    async def ask(number: str) -> Any:
        async def filter_input(data: Any) -> Any:
            filtered = await show(data)
            # No run calls a tool before both have synced.
            synced.add(number)
            if len(synced) == 2:
                both_synced.set()
            await both_synced.wait()
            return filtered

        own = replace(config, call_model_input_filter=filter_input)
        return await Runner.run(agents[int(number) - 1], f"Find needle {number}.", run_config=own)

    results = await asyncio.gather(ask("1"), ask("2"))
    for number, result in zip("12", results, strict=True):
        output = sent(provider, f"{model}-{number}")[1]
        assert (f"needle {number}" in output, result.final_output) == (True, ANSWER)
        assert f"needle {3 - int(number)}" not in output
    # Each run sent the usage of its own response.
    ids = [it["name"].split("/")[-1] for it in client.sessions("demo") if name in it["name"]]
    reported = sorted(client.session("demo", it).get()["counts"]["reported_tokens"] for it in ids)
    used = sorted(it.context_wrapper.usage.request_usage_entries[0].total_tokens for it in results)
    assert reported == used


def test_a_response_without_usage_has_that_of_no_other_agent() -> None:
    context, usage, items = RunContextWrapper[Any](None), LastUsage(), [{"role": "user", "content": "Hello."}]
    answer = {"type": "message", "role": "assistant", "content": "Hi."}
    usage.observe("agent", context)
    usage.expect("agent", context, items)
    context.usage.add(Usage(requests=1))
    context.usage.add(Usage(requests=1, input_tokens=7, output_tokens=1, total_tokens=8))
    assert usage.last_response("agent", "m", [*items, answer]) is None


def test_parallel_runs_as_tools_send_no_usage_of_each_other() -> None:
    shared, items = Usage(), [{"role": "user", "content": "Hello."}]
    answer = {"type": "message", "role": "assistant", "content": "Hi."}
    usage = LastUsage()
    nested = ToolContext[Any](None, usage=shared, tool_name="agent", tool_call_id="c1", tool_arguments="{}")
    usage.expect("agent", nested, items)
    shared.add(Usage(requests=1, input_tokens=7, output_tokens=1, total_tokens=8))
    assert usage.last_response("agent", "m", [*items, answer])
    # The order of two responses is that in which they arrive.
    shared.add(Usage(requests=1, input_tokens=9, output_tokens=1, total_tokens=10))
    assert usage.last_response("agent", "m", [*items, answer]) is None


async def test_tools_that_cannot_be_converted_are_not_counted(client: Palimpsest, name: str) -> None:
    context = PalimpsestContext("demo", name, client=client)
    show: Any = context.run_config().call_model_input_filter
    computers: list[Any] = [ComputerTool(computer=Any), ComputerTool(computer=Any)]
    agent = Agent[Any](name="agent", model="m", tools=computers)
    items: Any = [{"role": "user", "content": "Hello."}]
    filtered = await show(CallModelData(ModelInputData(items, None), agent, None))
    assert "Hello." in str(filtered.input)
