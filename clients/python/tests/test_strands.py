"""The conversation manager inside of agents of Strands, with models of Anthropic and OpenAI."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.middleware import InvokeModelStage
from strands.models.model import Model
from strands.types.exceptions import ContextWindowOverflowException

from cancelled import check_cancelled_run
from palimpsest import Palimpsest, UnavailableError
from palimpsest.strands import PalimpsestConversationManager, _content
from world import ANSWER, FOUND, LOG, PNG, TURNS, USAGE, Provider, fill, sent

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@tool
def read_log() -> str:
    """Reads the log of the build."""
    return LOG


@pytest.fixture(params=["anthropic", "openai"])
def chat_model(
    request: pytest.FixtureRequest, provider: Provider, async_claude: anthropic.AsyncAnthropic, model: str
) -> Any:
    if request.param == "anthropic":
        from strands.models.anthropic import AnthropicModel

        thinking = {"thinking": {"type": "enabled", "budget_tokens": 1_024}}
        options: Any = {"model_id": model, "max_tokens": 4_096, "params": thinking}
        claude = AnthropicModel(client_args={"api_key": "key"}, **options)
        # The model never closes its client.
        claude.client = async_claude
        return claude
    from strands.models.openai import OpenAIModel

    client = {"api_key": "key", "max_retries": 0, "base_url": f"{provider.url}/v1"}
    return OpenAIModel(client_args=client, model_id=model)


def agent_of(client: Palimpsest, chat_model: Any, name: str) -> tuple[Agent, PalimpsestConversationManager]:
    manager = PalimpsestConversationManager("demo", name, client=client)
    agent = Agent(chat_model, tools=[read_log], system_prompt="Be brief.", conversation_manager=manager)
    agent.callback_handler = lambda **_: None
    return agent, manager


def results(agent: Agent) -> list[str]:
    contents = [content for message in agent.messages for content in message["content"]]
    return [content["toolResult"]["content"][0]["text"] for content in contents if "toolResult" in content]


def check(provider: Provider, model: str, agent: Agent) -> None:
    arrays = sent(provider, model)
    assert ["palimpsest://" in it for it in arrays] == [False, True, True]
    assert ["disk full" in it for it in arrays] == [False, False, True]
    # The messages of the agent keep the whole results.
    assert results(agent).count(LOG) == 3


async def test_parallel_calls_and_read_back(
    client: Palimpsest, chat_model: Any, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, {**TURNS[0], "thinking": "Hm."}, {**TURNS[1], "usage": USAGE}, TURNS[2])
    agent, manager = agent_of(client, chat_model, name)
    assert str(await agent.invoke_async("Why did the build fail?")).strip() == ANSWER
    check(provider, model, agent)
    # The token count includes the usage of the last response.
    assert manager.session.get()["budget"]["used_tokens"] > 85_050
    if type(chat_model).__name__ == "AnthropicModel":
        assert "signature" in sent(provider, model)[1]


async def test_streaming(client: Palimpsest, chat_model: Any, provider: Provider, name: str, model: str) -> None:
    provider.script(model, *TURNS)
    agent, _ = agent_of(client, chat_model, name)
    texts = [event["data"] async for event in agent.stream_async("Why did the build fail?") if "data" in event]
    assert "".join(texts) == "I look." + ANSWER
    check(provider, model, agent)


async def test_compaction_and_undo(
    client: Palimpsest, chat_model: Any, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, *[{"text": f"answer {number}"} for number in range(7)])
    agent, manager = agent_of(client, chat_model, name)
    for number in range(5):
        await agent.invoke_async(f"question {number} " + "some words " * 500)
    manager.session.compact()
    await agent.invoke_async("after the compaction")
    assert manager.session.undo()
    await agent.invoke_async("after the undo")
    arrays = sent(provider, model)
    assert len(arrays[5]) < len(arrays[4]) < len(arrays[6])
    assert len(agent.messages) == 14


async def test_a_prompt_that_is_too_long_is_retried_once(
    client: Palimpsest, chat_model: Any, provider: Provider, name: str, model: str
) -> None:
    fault, answers = {"fault": {"html": 413}}, [{"text": f"answer {number}"} for number in range(5)]
    provider.script(model, *answers, fault, {"text": "Yes."}, fault, fault)
    agent, _ = agent_of(client, chat_model, name)
    for number in range(5):
        await agent.invoke_async(f"question {number} " + "some words " * 500)
    assert str(await agent.invoke_async("after the rejection")).strip() == "Yes."
    requests = provider.requests(model)
    assert [it["status"] for it in requests] == [200] * 5 + [413, 200]
    assert len(str(requests[6]["body"])) < len(str(requests[5]["body"]))
    assert len(agent.messages) == 12
    with pytest.raises(ContextWindowOverflowException):
        await agent.invoke_async("once more")
    assert [it["status"] for it in provider.requests(model)][7:] == [413, 413]


async def test_a_rejection_ends_with_its_repeat(
    client: Palimpsest, chat_model: Any, provider: Provider, name: str, model: str
) -> None:
    too_long, broken = {"fault": {"html": 413}}, {"fault": {"html": 500}}
    answers = [{"text": f"answer {number}"} for number in range(5)]
    provider.script(model, *answers, too_long, broken, too_long, {"text": "Yes."})
    agent, _ = agent_of(client, chat_model, name)
    for number in range(5):
        await agent.invoke_async(f"question {number} " + "some words " * 500)
    with pytest.raises(Exception, match="500"):
        await agent.invoke_async("after the rejection")
    assert str(await agent.invoke_async("once more " + "some words " * 500)).strip() == "Yes."
    assert [it["status"] for it in provider.requests(model)][5:] == [413, 500, 413, 200]


async def test_the_tools_of_the_service_read_the_lane(
    client: Palimpsest, chat_model: Any, provider: Provider, name: str, model: str
) -> None:
    fill(client.session("demo", name))
    provider.script(model, *TURNS)
    agent, _ = agent_of(client, chat_model, name)
    await agent.invoke_async("Why did the build fail?")
    assert FOUND in sent(provider, model)[2]


def test_results_of_the_service_keep_their_status() -> None:
    block = {"type": "tool_result", "tool_use_id": "a", "tool_name": "read_log", "content": "Interrupted."}
    assert _content(block, None)["toolResult"]["status"] == "success"
    assert _content({**block, "is_error": True}, None)["toolResult"]["status"] == "error"


class Echo(Model):
    """A model that records the messages of its requests."""

    def __init__(self) -> None:
        self.received: list[Any] = []

    def update_config(self, **model_config: Any) -> None: ...

    def get_config(self) -> Any:
        return {"model_id": "echo"}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncGenerator[Any, None]:
        self.received = messages
        await asyncio.sleep(0)
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockDelta": {"delta": {"text": "Done."}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def test_content_of_the_messages_reaches_the_model_unchanged(client: Palimpsest, name: str) -> None:
    image = {"image": {"format": "png", "source": {"bytes": base64.b64decode(PNG)}}}
    location = {"type": "s3", "uri": "s3://a/b.mp4"}
    report = {"document": {"format": "csv", "name": "report", "source": {"bytes": b"1,2"}}}
    reasoning = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s"}}}
    use = {"toolUse": {"toolUseId": "a", "name": "read_log", "input": {}}}
    outcome = {"toolUseId": "a", "status": "error", "content": [{"text": "no"}, {"json": {"code": 2}}, image]}
    history: Any = [
        {"role": "user", "content": [{"text": "See"}, image, {"cachePoint": {"type": "default"}}, report]},
        {"role": "assistant", "content": [reasoning, {"text": "I look."}, use]},
        {"role": "user", "content": [{"toolResult": outcome}]},
        {"role": "assistant", "content": [reasoning]},
        {"role": "user", "content": [{"video": {"format": "mp4", "source": {"location": location}}}]},
        {"role": "assistant", "content": [{"text": "Yes."}]},
    ]
    echo = Echo()
    manager = PalimpsestConversationManager("demo", name, client=client)
    agent = Agent(echo, messages=list(history), conversation_manager=manager, callback_handler=None)
    # Without the tool that removes turns, no message of the user gets an id.
    manager._adapter._definitions = [it for it in manager._adapter.definitions() if it["name"] != "Snip"]

    def add_block(context: Any) -> Any:
        last = context.messages[-1]
        messages = [*context.messages[:-1], {**last, "content": [*last["content"], {"text": "It is noon."}]}]
        return context.replace(messages=messages, dynamic_trailing_blocks=1)

    agent.add_middleware(InvokeModelStage.Input, add_block)
    agent("And?")
    received = [it["content"] for it in echo.received]
    assert received[:-1] == [it["content"] for it in history]
    assert received[-1] == [{"text": "And?"}, {"text": "It is noon."}]
    assert not list(manager.session.search("noon"))


def test_an_agent_is_created_without_a_call(name: str) -> None:
    # Nobody listens there.
    with Palimpsest("http://127.0.0.1:9", max_retries=0) as unreachable:
        manager = PalimpsestConversationManager("demo", name, client=unreachable)
        agent = Agent(Echo(), conversation_manager=manager, callback_handler=None)
        with pytest.raises(UnavailableError):
            agent("Hello.")


def test_a_tool_with_the_name_of_one_of_the_service(client: Palimpsest, name: str) -> None:
    manager = PalimpsestConversationManager("demo", name, client=client)
    snip = tool(name="Snip")(read_log._tool_func)
    agent = Agent(Echo(), tools=[snip], conversation_manager=manager, callback_handler=None)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"names of tools of the service: Snip\."):
            agent("Hello.")
    assert list(agent.tool_registry.registry) == ["Snip"]


def test_an_agent_without_the_tools_of_the_service(client: Palimpsest, name: str) -> None:
    manager = PalimpsestConversationManager("demo", name, client=client, read_back=False)
    agent = Agent(Echo(), tools=[read_log], conversation_manager=manager, callback_handler=None)
    agent("Hello.")
    assert list(agent.tool_registry.registry) == ["read_log"]


def test_state_of_the_manager_is_that_of_no_other(client: Palimpsest) -> None:
    manager = PalimpsestConversationManager("demo", "state", client=client)
    assert manager.restore_from_session(manager.get_state()) is None
    with pytest.raises(ValueError, match="Invalid"):
        manager.restore_from_session(NullConversationManager().get_state())


async def test_a_cancelled_run_leaves_no_request(name: str, tmp_path: Path) -> None:
    def prepare(client: Palimpsest) -> Any:
        agent, manager = agent_of(client, Echo(), name)
        manager._adapter.definitions()
        return lambda: agent.invoke_async("Hello.")

    await check_cancelled_run(tmp_path / "data", name, prepare)
