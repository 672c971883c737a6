"""Plays a task with `create_agent` of LangChain and the chat model of Anthropic."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from play import KEY, MAX_OUTPUT, Play, conversation


def run(state: Play) -> None:
    """Plays the task."""
    options, middleware = state.variant.make(state.window)
    model = ChatAnthropic(
        model=state.model,
        base_url=state.provider.url,
        api_key=KEY,
        max_retries=0,
        max_tokens=MAX_OUTPUT,
        profile={"max_input_tokens": state.window},
        **options,
    )
    agent = create_agent(
        model,
        tools=[_tool(state, name, arguments) for name, arguments in state.task.tools.items()],
        system_prompt=state.task.system,
        # Every variant uses the prompt cache, as LangChain documents it.
        middleware=[*middleware(model), AnthropicPromptCachingMiddleware()],
        checkpointer=InMemorySaver(),
    )
    watcher = Watcher(state)
    config: Any = {"configurable": {"thread_id": "t"}, "callbacks": [watcher], "recursion_limit": 1_000}

    def ask(text: str) -> None:
        agent.invoke({"messages": [{"role": "user", "content": text}]}, config)

    conversation(state, ask)
    messages = agent.get_state(config).values["messages"]
    state.kept({it.content for it in messages if isinstance(it, ToolMessage)})


class Watcher(BaseCallbackHandler):
    """Reads the usage that the responses of models report."""

    run_inline = True

    def __init__(self, state: Play) -> None:
        self._state = state

    def on_llm_end(self, response: Any, **_: Any) -> None:
        """Records the input of a request."""
        self._state.used(response.generations[0][0].message.usage_metadata["input_tokens"])


def _tool(state: Play, name: str, arguments: dict[str, str]) -> BaseTool:
    def call(**given: Any) -> str:
        return state.toolbox.run(name, given)

    properties = {key: {"type": "string", "description": text} for key, text in arguments.items()}
    schema = {"type": "object", "properties": properties, "required": list(arguments)}
    return StructuredTool.from_function(call, name=name, description=f"Runs {name}.", args_schema=schema)
