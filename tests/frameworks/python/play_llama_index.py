"""Plays a task with `FunctionAgent` of LlamaIndex and the Chat Completions API of OpenAI."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from llama_index.core.agent.workflow import AgentOutput
from llama_index.core.tools import FunctionTool, ToolMetadata
from llama_index.llms.openai_like import OpenAILike
from play import KEY, MAX_OUTPUT, Play, conversation
from pydantic import create_model


def run(state: Play) -> None:
    """Plays the task."""
    asyncio.run(_run(state))


async def _run(state: Play) -> None:
    client = httpx.AsyncClient()
    llm = OpenAILike(
        model=state.model,
        api_base=f"{state.provider.url}/v1",
        api_key=KEY,
        max_retries=0,
        # The only temperature of models that reason.
        temperature=1,
        additional_kwargs={"max_completion_tokens": MAX_OUTPUT},
        context_window=state.window,
        is_chat_model=True,
        is_function_calling_model=True,
        async_http_client=client,
    )
    tools = [_tool(state, name, arguments) for name, arguments in state.task.tools.items()]
    agent, memory = state.variant.make(llm, tools, state.task.system, state.window)

    async def ask(text: str) -> None:
        handler = agent.run(text, memory=memory, max_iterations=1_000)
        async for event in handler.stream_events():
            if isinstance(event, AgentOutput) and event.raw:
                state.used(_usage(event.raw)["prompt_tokens"])
        await handler

    loop = asyncio.get_running_loop()
    await asyncio.to_thread(
        conversation, state, lambda text: asyncio.run_coroutine_threadsafe(ask(text), loop).result()
    )
    state.kept({it.content for it in await memory.aget_all() if it.role == "tool"})
    await client.aclose()


def _usage(raw: Any) -> dict[str, int]:
    return raw["usage"] if isinstance(raw["usage"], dict) else raw["usage"].model_dump()


def _tool(state: Play, name: str, arguments: dict[str, str]) -> FunctionTool:
    def call(**given: Any) -> str:
        return state.toolbox.run(name, given)

    schema = create_model(name, **dict.fromkeys(arguments, (str, ...)))
    return FunctionTool(call, ToolMetadata(f"Runs {name}.", name, schema))
