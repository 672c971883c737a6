"""Plays a task with Pydantic AI and its model of Anthropic."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
from play import KEY, MAX_OUTPUT, Play, conversation
from pydantic_ai import Agent, ModelResponse, Tool, capture_run_messages
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider


def run(state: Play) -> None:
    """Plays the task."""
    asyncio.run(_run(state))


async def _run(state: Play) -> None:
    client = anthropic.AsyncAnthropic(base_url=state.provider.url, api_key=KEY, max_retries=0)
    model = AnthropicModel(
        state.model,
        provider=AnthropicProvider(anthropic_client=client),
        # Every variant uses the prompt cache.
        settings={"max_tokens": MAX_OUTPUT, "anthropic_cache": True},
        profile={"context_window": state.window},
    )
    agent = Agent(
        model,
        instructions=state.task.system,
        tools=[_tool(state, name, arguments) for name, arguments in state.task.tools.items()],
        capabilities=state.variant.make(model),
    )
    history: list[Any] = []

    async def ask(text: str) -> None:
        with capture_run_messages() as messages:
            try:
                await agent.run(text, message_history=history)
            finally:
                history[:] = messages
                inputs = [it.usage.input_tokens for it in messages if isinstance(it, ModelResponse)]
                state.used(max(inputs, default=0))

    loop = asyncio.get_running_loop()
    await asyncio.to_thread(
        conversation, state, lambda text: asyncio.run_coroutine_threadsafe(ask(text), loop).result()
    )
    state.kept({part.content for it in history for part in it.parts if part.part_kind == "tool-return"})
    await client.close()


def _tool(state: Play, name: str, arguments: dict[str, str]) -> Tool[Any]:
    def call(**given: Any) -> str:
        return state.toolbox.run(name, given)

    properties = {key: {"type": "string", "description": text} for key, text in arguments.items()}
    schema = {"type": "object", "properties": properties, "required": list(arguments)}
    return Tool.from_schema(call, name, f"Runs {name}.", schema)
