"""The middleware inside of LangChain's agent, with chat models of Anthropic and OpenAI."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from palimpsest import Palimpsest
from palimpsest.langchain import PalimpsestMiddleware
from world import LOG, Provider, Server

agents = pytest.importorskip("langchain.agents")

# Chat models keep connections and TLS settings for the process.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")

ANSWER = "Its disk was full."
CALL: dict[str, Any] = {"text": "I look.", "calls": [{"name": "read_log"}, {"name": "read_log"}]}
READ_BACK: dict[str, Any] = {
    "calls": [{"name": "SearchTranscript", "input": {"pattern": "disk full"}}, {"name": "read_log"}]
}


def read_log() -> str:
    """Reads the log of the build."""
    return LOG


@pytest.fixture(params=["anthropic", "openai"])
def chat_model(request: pytest.FixtureRequest, provider: Provider, model: str) -> Any:
    if request.param == "anthropic":
        from langchain_anthropic import ChatAnthropic

        thinking = {"type": "enabled", "budget_tokens": 1_024}
        options: dict[str, Any] = {"model": model, "api_key": "key", "max_retries": 0, "thinking": thinking}
        return ChatAnthropic(base_url=provider.url, **options)
    from langchain_openai import ChatOpenAI

    keys: dict[str, Any] = {"api_key": "key", "max_retries": 0}
    return ChatOpenAI(model=model, base_url=f"{provider.url}/v1", **keys)


class Agent:
    """An agent with the middleware and a checkpointer."""

    def __init__(self, client: Palimpsest, chat_model: Any, thread: str) -> None:
        from langgraph.checkpoint.memory import InMemorySaver

        self.middleware = PalimpsestMiddleware("demo", client=client)
        self.graph = agents.create_agent(
            chat_model,
            tools=[read_log],
            system_prompt="Be brief.",
            middleware=[self.middleware],
            checkpointer=InMemorySaver(),
        )
        self.config: Any = {"configurable": {"thread_id": thread}}

    @staticmethod
    def input(text: str) -> Any:
        return {"messages": [{"role": "user", "content": text}]}

    def ask(self, text: str = "Why did the build fail?") -> list[Any]:
        messages: list[Any] = self.graph.invoke(self.input(text), self.config)["messages"]
        return messages


def sent(provider: Provider, model: str) -> list[str]:
    requests = provider.requests(model)
    assert {it["status"] for it in requests} == {200}, [it for it in requests if it["status"] != 200]
    return [str(it["body"]["messages"]) for it in requests]


def check(provider: Provider, model: str, messages: list[Any]) -> None:
    arrays = sent(provider, model)
    assert ["palimpsest://" in it for it in arrays] == [False, True, True]
    assert ["disk full" in it for it in arrays] == [False, False, True]
    # The state of the agent keeps the whole results.
    assert sum(it.content == LOG for it in messages) == 3
    assert str(messages[-1].text) == ANSWER


def test_parallel_calls_and_read_back(
    client: Palimpsest, chat_model: Any, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, {**CALL, "thinking": "Hm."}, READ_BACK, {"text": ANSWER})
    check(provider, model, Agent(client, chat_model, name).ask())
    if "thinking" in str(provider.requests(model)[0]["body"]):
        # The thinking of the response is part of the next request, with its signature.
        assert "signature" in sent(provider, model)[1]


def test_tokens_are_those_of_the_provider(
    client: Palimpsest, chat_model: Any, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, {"text": "Hello."}, {"text": ANSWER})
    agent = Agent(client, chat_model, name)
    agent.ask("Good morning.")
    first = agent.ask()[1].usage_metadata
    reported = agent.middleware.session(name).get()["counts"]["reported_tokens"]
    assert reported == first["total_tokens"]


async def test_async_and_streaming(
    client: Palimpsest, chat_model: Any, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, CALL, READ_BACK, {"text": ANSWER}, {"text": "Yes."})
    agent = Agent(client, chat_model, name)
    texts = []
    async for chunk, _ in agent.graph.astream(agent.input("Why?"), agent.config, stream_mode="messages"):
        if type(chunk).__name__ == "AIMessageChunk":
            texts.append(str(chunk.text))
    # Async runs of LangGraph stream no chunks of the model before Python 3.11, with and without a middleware.
    if sys.version_info >= (3, 11):
        assert "".join(texts) == "I look." + ANSWER
    check(provider, model, (await agent.graph.aget_state(agent.config)).values["messages"])
    assert (await agent.graph.ainvoke(agent.input("Sure?"), agent.config))["messages"][-1].text == "Yes."


def test_compaction_and_undo(client: Palimpsest, chat_model: Any, provider: Provider, name: str, model: str) -> None:
    provider.script(model, *[{"text": f"answer {number}"} for number in range(8)])
    agent = Agent(client, chat_model, name)
    for number in range(5):
        agent.ask(f"question {number} " + "some words " * 500)
    session = agent.middleware.session(name)
    session.compact()
    agent.ask("after the compaction")
    assert session.undo()
    agent.ask("after the undo")
    arrays = sent(provider, model)
    assert len(arrays[5]) < len(arrays[4]) < len(arrays[6])


def test_a_prompt_that_is_too_long_is_retried_once(
    client: Palimpsest, chat_model: Any, provider: Provider, name: str, model: str
) -> None:
    provider.script(model, *[{"text": f"answer {number}"} for number in range(5)], {"fault": {"html": 413}})
    agent = Agent(client, chat_model, name)
    for number in range(5):
        agent.ask(f"question {number} " + "some words " * 500)
    agent.ask("after the rejection")
    statuses = [it["status"] for it in provider.requests(model)]
    assert statuses == [200] * 5 + [413, 200]


def test_the_session_needs_a_name(server: Server, chat_model: Any) -> None:
    with Palimpsest(server.url) as client:
        graph = agents.create_agent(chat_model, middleware=[PalimpsestMiddleware("demo", client=client)])
        with pytest.raises(ValueError, match="thread_id"):
            graph.invoke(Agent.input("hello"))
