"""Plays a task with Google's Agent Development Kit and the Chat Completions API of OpenAI.

With the model class of Anthropic, a compacted request begins with a message of the model, and Anthropic rejects it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import openai
from google.adk.agents import Agent
from google.adk.agents.run_config import RunConfig
from google.adk.apps import App
from google.adk.integrations.openai import OpenAILlm
from google.adk.runners import InMemoryRunner
from google.adk.tools.base_tool import BaseTool
from google.genai import types
from play import KEY, MAX_OUTPUT, Play, conversation


def run(state: Play) -> None:
    """Plays the task."""
    logging.getLogger("google_adk").setLevel(logging.CRITICAL)
    asyncio.run(_run(state))


async def _run(state: Play) -> None:
    client = openai.AsyncOpenAI(base_url=f"{state.provider.url}/v1", api_key=KEY, max_retries=0)
    agent = Agent(
        name="agent",
        model=OpenAILlm(model=state.model, max_tokens=MAX_OUTPUT, client=client),
        instruction=state.task.system,
        tools=[_Tool(state, name, arguments) for name, arguments in state.task.tools.items()],
    )
    runner = InMemoryRunner(app=App(name="app", root_agent=agent, **state.variant.make(state.window)))
    place = {"user_id": "user", "session_id": "t"}
    await runner.session_service.create_session(app_name="app", **place)

    async def ask(text: str) -> None:
        message = types.Content(role="user", parts=[types.Part(text=text)])
        config = RunConfig(max_llm_calls=1_000)
        async for event in runner.run_async(**place, new_message=message, run_config=config):
            state.used((event.usage_metadata and event.usage_metadata.prompt_token_count) or 0)

    loop = asyncio.get_running_loop()
    await asyncio.to_thread(
        conversation, state, lambda text: asyncio.run_coroutine_threadsafe(ask(text), loop).result()
    )
    session = await runner.session_service.get_session(app_name="app", **place)
    responses = [it.response for event in session.events for it in event.get_function_responses()]  # type: ignore[union-attr]
    state.kept({it.get("result") for it in responses if it})
    await runner.close()
    await client.close()


class _Tool(BaseTool):
    """A tool of the task."""

    def __init__(self, state: Play, name: str, arguments: dict[str, str]) -> None:
        super().__init__(name=name, description=f"Runs {name}.")
        self._state = state
        self._arguments = arguments

    def _get_declaration(self) -> types.FunctionDeclaration:
        properties = {key: {"type": "string", "description": text} for key, text in self._arguments.items()}
        schema = {"type": "object", "properties": properties, "required": list(self._arguments)}
        return types.FunctionDeclaration(name=self.name, description=self.description, parameters_json_schema=schema)

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> Any:
        """Returns the result of a call."""
        return {"result": self._state.toolbox.run(self.name, args)}
