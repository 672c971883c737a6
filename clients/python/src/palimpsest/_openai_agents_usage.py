"""The usage of the last response of an agent, for the OpenAI Agents SDK."""

from __future__ import annotations

import weakref
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, ClassVar

from agents import RunContextWrapper, Usage
from agents.tool_context import ToolContext
from agents.usage import RequestUsage

from ._base import SessionState
from .errors import JsonObject
from .session import Session

# Parallel runs of an agent whose responses are not yet known.
_MAX_EXPECTED = 16


@dataclass(frozen=True)
class _Expected:
    """A model call whose response is not yet known: its input, and the usage of the run before it."""

    items: Sequence[Any]
    usage: Usage
    requests: int
    entries: int
    is_nested: bool

    def entry(self) -> RequestUsage | None:
        """Returns the usage of the response, if it is certain which one of the run it is."""
        added = self.usage.request_usage_entries[self.entries :]
        # A response without usage is a request without an entry. A failed attempt of it has one without tokens.
        if not added or len(added) != self.usage.requests - self.requests or not added[0].total_tokens:
            return None
        # Agents that run as tools append to the same list, after the response that called them. Those that run in
        # parallel append in any order.
        return added[0] if len(added) == 1 or not self.is_nested else None


class LastUsage:
    """The runs of the agents of a session, by the name of the agent, and their last model calls."""

    _of_sessions: ClassVar[weakref.WeakKeyDictionary[SessionState, LastUsage]] = weakref.WeakKeyDictionary()

    def __init__(self) -> None:
        self._contexts: dict[str, list[weakref.ref[RunContextWrapper[Any]]]] = {}
        self._expected: dict[str, deque[_Expected]] = defaultdict(lambda: deque(maxlen=_MAX_EXPECTED))

    @classmethod
    def of(cls, session: Session) -> LastUsage:
        """Returns the usage of a session. The filter and the tools share it."""
        return cls._of_sessions.setdefault(session._state, cls())

    def observe(self, agent: str, context: RunContextWrapper[Any]) -> None:
        """Remembers the context of a run of an agent."""
        others = [it for it in self._contexts.get(agent, []) if it() is not None and it() is not context]
        self._contexts[agent] = [*others, weakref.ref(context)]

    def context(self, agent: str, items: Sequence[Any]) -> RunContextWrapper[Any] | None:
        """Returns the context of the run of an agent whose next input is given. None if several can be meant."""
        live = [context for it in self._contexts.get(agent, []) if (context := it()) is not None]
        if len({id(it.usage) for it in live}) > 1:
            # The input of a run begins with that of its turn.
            begun = [it for it in live if _is_prefix(it.turn_input, items)]
            longest = max((len(it.turn_input) for it in begun), default=0)
            live = [it for it in begun if len(it.turn_input) == longest]
        return live[-1] if len({id(it.usage) for it in live}) == 1 else None

    def expect(self, agent: str, context: RunContextWrapper[Any] | None, items: Sequence[Any]) -> None:
        """Remembers the input of the next model call of a run."""
        if context is not None:
            usage, is_nested = context.usage, isinstance(context, ToolContext)
            entries = len(usage.request_usage_entries)
            self._expected[agent].append(_Expected(items, usage, usage.requests, entries, is_nested))

    def last_response(self, agent: str, model: str, items: Sequence[Any]) -> JsonObject | None:
        """Returns the last response in an input with its usage. None if the input does not continue a known one."""
        known = [it for it in self._expected[agent] if it.items and _is_prefix(it.items, items)]
        last = max(known, key=lambda it: len(it.items), default=None)
        if last is None:
            return None
        output = list(takewhile(_is_output, items[len(last.items) :]))
        entry = last.entry()
        if not output or entry is None:
            return None
        usage = {name: getattr(entry, name) for name in ("input_tokens", "output_tokens", "total_tokens")}
        response = {"object": "response", "status": "completed", "model": model, "output": output, "usage": usage}
        return {"format": "openai_responses", "json": response}


def _is_prefix(first: Sequence[Any], items: Sequence[Any]) -> bool:
    return len(first) <= len(items) and all(it == other for it, other in zip(first, items, strict=False))


def _is_output(item: Any) -> bool:
    kind = item.get("type", "message")
    return item.get("role") == "assistant" if kind == "message" else not kind.endswith(("_output", "_response"))
