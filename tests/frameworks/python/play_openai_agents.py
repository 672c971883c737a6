"""Plays a task with the OpenAI Agents SDK and the Responses API."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import openai
from agents import Agent, FunctionTool, OpenAIResponsesModel, RunHooks, Runner, SQLiteSession
from play import KEY, Play, conversation


def run(state: Play) -> None:
    """Plays the task."""
    asyncio.run(_run(state))


async def _run(state: Play) -> None:
    client = openai.AsyncOpenAI(base_url=f"{state.provider.url}/v1", api_key=KEY, max_retries=0)
    store = SQLiteSession("t")
    session, config, own_tools = state.variant.make(store, client, state.model)
    config = replace(config, tracing_disabled=True)
    agent = Agent[Any](
        name="agent",
        instructions=state.task.system,
        model=OpenAIResponsesModel(model=state.model, openai_client=client),
        tools=[*(_tool(state, name, arguments) for name, arguments in state.task.tools.items()), *own_tools],
    )

    async def ask(text: str) -> None:
        await Runner.run(agent, text, session=session, run_config=config, max_turns=1_000, hooks=Watcher(state))

    loop = asyncio.get_running_loop()
    await asyncio.to_thread(
        conversation, state, lambda text: asyncio.run_coroutine_threadsafe(ask(text), loop).result()
    )
    state.kept({it.get("output") for it in await store.get_items()})  # type: ignore[union-attr]
    store.close()
    await client.close()


class Watcher(RunHooks[Any]):
    """Reads the usage that the responses of the model report."""

    def __init__(self, state: Play) -> None:
        self._state = state

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        """Records the input of a request."""
        self._state.used(response.usage.input_tokens)


def _tool(state: Play, name: str, arguments: dict[str, str]) -> FunctionTool:
    async def call(_: Any, given: str) -> str:
        return state.toolbox.run(name, json.loads(given))

    properties = {key: {"type": "string", "description": text} for key, text in arguments.items()}
    schema = {"type": "object", "properties": properties, "required": list(arguments), "additionalProperties": False}
    return FunctionTool(name, f"Runs {name}.", schema, call)
