"""The context of the OpenAI Agents SDK: a `Session`, a filter of model inputs, and the tools of the service."""

from ._openai_agents_input import input_filter, load_tools, tools
from ._openai_agents_session import PalimpsestSession

__all__ = ["PalimpsestSession", "input_filter", "load_tools", "tools"]
