"""Aliases for ids of tool calls that the service would replace."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict, deque

_LEGAL = re.compile(r"[A-Za-z0-9_-]+")


class CallIds:
    """The ids of the calls and results of an array, in its order.

    An id with other characters, a long id and a repeated id have an alias. It depends on the earlier calls with this
    id alone, so it stays the same in the next array.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._counts: Counter[str | None] = Counter()
        self._open: dict[str | None, deque[str]] = defaultdict(deque)
        self._last: dict[str | None, str] = {}
        self._originals: dict[str, str | None] = {}

    def of_call(self, call_id: str | None) -> str:
        """Returns the id of the next call of the array."""
        self._counts[call_id] += 1
        value = call_id or ""
        is_kept = len(value) <= self._longest and _LEGAL.fullmatch(value) and self._counts[call_id] == 1
        alias = value if is_kept else self._alias(call_id)
        self._open[call_id].append(alias)
        self._last[call_id] = alias
        return alias

    def of_result(self, call_id: str | None) -> str:
        """Returns the id of the next result: that of the first call with this id and without a result."""
        calls = self._open[call_id]
        return calls.popleft() if calls else self._last.get(call_id, call_id or "")

    def original(self, alias: str) -> str | None:
        """Returns the id that the framework knows."""
        return self._originals.get(alias, alias)

    def _alias(self, call_id: str | None) -> str:
        text = f"{self._counts[call_id]} {call_id}"
        alias = f"call_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
        self._originals[alias] = call_id
        return alias
