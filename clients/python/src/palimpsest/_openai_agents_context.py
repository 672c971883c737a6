"""The context of a conversation for the OpenAI Agents SDK: the view for model calls, and the tools of the service."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from agents import Agent, RunConfig, Tool

from ._adapter import check_names
from ._openai_agents_input import input_filter, tools
from ._threads import in_thread
from .client import Palimpsest
from .session import Session

_Context = TypeVar("_Context")


class PalimpsestContext:
    """Sends the view of a session to the model, beside any `Session` of the SDK or none.

    Requests to the service run in threads.
    """

    def __init__(self, project: str, session_id: str, *, client: Palimpsest | None = None) -> None:
        client = client or Palimpsest()
        #: The session of the service, for example to undo a compaction.
        self.session: Session = client.session(project, session_id, "openai_responses")

    def run_config(self, config: RunConfig | None = None, **options: Any) -> RunConfig:
        """Returns a `RunConfig` that sends the view to the model. `options` are further fields of it."""
        config = replace(config or RunConfig(), **options)
        if config.call_model_input_filter is not None:
            raise ValueError(
                "A run has one `call_model_input_filter`. Leave yours out of the `RunConfig`, and replace the filter of"
                " the returned one by a function that calls both."
            )
        return replace(config, call_model_input_filter=input_filter(self.session, config.model))

    def with_tools(self, agent: Agent[_Context]) -> Agent[_Context]:
        """Returns the agent with the tools of the service. Agents of handoffs need `tools` in their own definition."""
        own = self.tools()
        check_names([it.name for it in agent.tools], [it.name for it in own])
        return agent.clone(tools=[*agent.tools, *own])

    def tools(self) -> list[Tool]:
        """Returns the tools of the service, for `Agent(tools=...)`. The model reads removed content with them.

        The first call makes a request. Call `load_tools` before it in an event loop.
        """
        return tools(self.session)

    async def load_tools(self) -> list[Tool]:
        """Returns the tools without blocking the event loop. `tools` and `with_tools` then make no request."""
        return await in_thread(self.tools)
