"""Plays a task with Strands Agents and its model of Anthropic."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import httpx2
from play import KEY, MAX_OUTPUT, Play, conversation
from strands import Agent
from strands.models.anthropic import AnthropicModel
from strands.models.model import CacheConfig
from strands.tools.tools import PythonAgentTool


def run(state: Play) -> None:
    """Plays the task."""
    asyncio.run(_run(state))


async def _run(state: Play) -> None:
    # Strands writes summaries in another event loop, which cannot use open connections of the first one.
    http_client = anthropic.DefaultAsyncHttpxClient(limits=httpx2.Limits(max_keepalive_connections=0))
    model = AnthropicModel(
        client_args={"base_url": state.provider.url, "api_key": KEY, "max_retries": 0, "http_client": http_client},
        model_id=state.model,
        max_tokens=MAX_OUTPUT,
        context_window_limit=state.window,
        # Every variant uses the prompt cache.
        cache_config=CacheConfig(),
    )
    agent = Agent(
        model,
        system_prompt=state.task.system,
        tools=[_tool(state, name, arguments) for name, arguments in state.task.tools.items()],
        callback_handler=lambda **event: _read_usage(state, event),
        **state.variant.make(),
    )

    async def ask(text: str) -> None:
        await agent.invoke_async(text)

    loop = asyncio.get_running_loop()
    await asyncio.to_thread(
        conversation, state, lambda text: asyncio.run_coroutine_threadsafe(ask(text), loop).result()
    )
    blocks = [
        block["toolResult"] for message in agent.messages for block in message["content"] if "toolResult" in block
    ]
    manager = agent._context_manager
    stash = await manager.stash.take_snapshot() if manager and manager.stash else {}
    stashed = {it.get("text") for it in stash.values()}
    state.kept(stashed | {"".join(it.get("text", "") for it in block["content"]) for block in blocks})
    await model.client.close()


def _read_usage(state: Play, event: dict[str, Any]) -> None:
    """Records the input of a request, which the last event of a response reports."""
    usage = event.get("event", {}).get("metadata", {}).get("usage")
    if usage:
        cached = usage.get("cacheReadInputTokens", 0) + usage.get("cacheWriteInputTokens", 0)
        state.used(usage["inputTokens"] + cached)


def _tool(state: Play, name: str, arguments: dict[str, str]) -> PythonAgentTool:
    def call(tool_use: Any, **_: Any) -> Any:
        text = state.toolbox.run(name, tool_use["input"])
        return {"toolUseId": tool_use["toolUseId"], "status": "success", "content": [{"text": text}]}

    properties = {key: {"type": "string", "description": text} for key, text in arguments.items()}
    schema = {"type": "object", "properties": properties, "required": list(arguments)}
    return PythonAgentTool(name, {"name": name, "description": f"Runs {name}.", "inputSchema": {"json": schema}}, call)
