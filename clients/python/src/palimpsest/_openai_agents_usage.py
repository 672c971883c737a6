"""The usage of the last response of an agent, for the OpenAI Agents SDK."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, ClassVar

from agents import RunContextWrapper, Usage

from ._base import SessionState
from .errors import JsonObject
from .session import Session


@dataclass(frozen=True)
class _Expected:
    """A model call whose response is not yet known: its input, and the place of its usage in that of the run."""

    items: Sequence[Any]
    usage: Usage
    index: int


class LastUsage:
    """The runs of the agents of a session, by the name of the agent, and their last model calls."""

    _of_sessions: ClassVar[weakref.WeakKeyDictionary[SessionState, LastUsage]] = weakref.WeakKeyDictionary()

    def __init__(self) -> None:
        self._contexts: dict[str, weakref.ref[RunContextWrapper[Any]]] = {}
        self._expected: dict[str, _Expected] = {}

    @classmethod
    def of(cls, session: Session) -> LastUsage:
        """Returns the usage of a session. The filter and the tools share it."""
        return cls._of_sessions.setdefault(session._state, cls())

    def observe(self, agent: str, context: RunContextWrapper[Any]) -> None:
        """Remembers the context of the current run of an agent."""
        self._contexts[agent] = weakref.ref(context)

    def context(self, agent: str) -> RunContextWrapper[Any] | None:
        """Returns the context of the current run of an agent."""
        found = self._contexts.get(agent)
        return found() if found else None

    def expect(self, agent: str, items: Sequence[Any]) -> None:
        """Remembers the input of the next model call."""
        context = self.context(agent)
        if context is None:
            self._expected.pop(agent, None)
        else:
            # Agents that run as tools append to the same list, after the response that called them.
            index = len(context.usage.request_usage_entries)
            self._expected[agent] = _Expected(items, context.usage, index)

    def last_response(self, agent: str, model: str, items: Sequence[Any]) -> JsonObject | None:
        """Returns the last response in an input with its usage. None if the input does not continue the last one."""
        last = self._expected.get(agent)
        start = len(last.items) if last else 0
        if last is None or not start or len(items) <= start or items[start - 1] != last.items[-1]:
            return None
        output = list(takewhile(_is_output, items[start:]))
        entries = last.usage.request_usage_entries[last.index :]
        if not output or not entries:
            return None
        usage = {name: getattr(entries[0], name) for name in ("input_tokens", "output_tokens", "total_tokens")}
        response = {"object": "response", "status": "completed", "model": model, "output": output, "usage": usage}
        return {"format": "openai_responses", "json": response}


def _is_output(item: Any) -> bool:
    kind = item.get("type", "message")
    return item.get("role") == "assistant" if kind == "message" else not kind.endswith(("_output", "_response"))
