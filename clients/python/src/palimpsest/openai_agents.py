"""The context of the OpenAI Agents SDK: the view for model calls, the tools of the service, and a `Session`."""

from ._openai_agents_context import PalimpsestContext
from ._openai_agents_session import PalimpsestSession

__all__ = ["PalimpsestContext", "PalimpsestSession"]
