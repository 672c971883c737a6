"""The parts of a task: what the user writes, what the model answers, and what the tools return."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[3]
#: The longest result of a tool, in characters. Agents limit the output of their tools.
MAX_RESULT = 24_000


@dataclass(frozen=True)
class Call:
    """One tool call and its result."""

    tool: str
    arguments: dict[str, str]
    result: str


@dataclass(frozen=True)
class Round:
    """One response of the model with tool calls."""

    text: str
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class UserTurn:
    """A user input, the rounds of the model, and its final text."""

    request: str
    rounds: tuple[Round, ...]
    answer: str


@dataclass(frozen=True)
class Needle:
    """A text that is seen once, early, and needed at the end.

    `pattern` is the text that a model would search for. It comes from the question. `repeatable` is true if the agent
    could get the text again by another call of its own tools.
    """

    name: str
    text: str
    pattern: str
    repeatable: bool


@dataclass(frozen=True)
class Task:
    """A conversation of an agent. After the last turn, the user asks for the needles."""

    name: str
    system: str
    tools: dict[str, dict[str, str]]
    turns: tuple[UserTurn, ...]
    question: str
    needles: tuple[Needle, ...]

    def rounds(self) -> list[Round]:
        """Returns the rounds of all turns."""
        return [it for turn in self.turns for it in turn.rounds]

    def results(self) -> list[str]:
        """Returns the results of all tool calls, in order."""
        return [call.result for it in self.rounds() for call in it.calls]

    def check(self) -> None:
        """Raises an error if a needle is not in exactly one place."""
        texts = [turn.request for turn in self.turns] + self.results()
        for needle in self.needles:
            count = sum(needle.text in text for text in texts)
            assert count == 1, f"{self.name}: {needle.name} is in {count} places"
            assert needle.pattern in needle.text, f"{self.name}: no search finds {needle.name}"


@dataclass
class Toolbox:
    """Runs the tools of one play of a task, by the prepared results."""

    task: Task
    returned: list[str] = field(default_factory=list)
    #: Runs before a result is returned.
    before_result: Callable[[], None] = lambda: None
    _results: dict[str, deque[str]] = field(default_factory=lambda: defaultdict(deque))

    def __post_init__(self) -> None:
        """Prepares the results by call. Equal calls return their results in order."""
        for it in self.task.rounds():
            for call in it.calls:
                self._results[_key(call.tool, call.arguments)].append(call.result)

    def run(self, tool: str, arguments: dict[str, Any]) -> str:
        """Returns the result of a call."""
        self.before_result()
        result = self._results[_key(tool, arguments)].popleft()
        self.returned.append(result)
        return result


def _key(tool: str, arguments: dict[str, Any]) -> str:
    return json.dumps([tool, arguments], sort_keys=True)


def cut(text: str) -> str:
    """Returns the text as a tool with a limited output returns it."""
    return text if len(text) <= MAX_RESULT else text[:MAX_RESULT] + "\n… the rest is cut"
