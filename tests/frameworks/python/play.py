"""One play: a task, a window and a variant, with servers of its own. Returns the measures."""

from __future__ import annotations

import json
import os
import tempfile
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from task import Needle, Task, Toolbox
from variant import Variant

from world import Provider, Server

KEY = "key"
#: The longest answer that a request allows. Providers reserve it in the window.
MAX_OUTPUT = 2_048


@dataclass
class Measures:
    """The outcome of one play."""

    variant: str
    turns: int = 0
    calls: int = 0
    error: str = ""
    refused: int = 0
    largest: int = 0
    model_calls: int = 0
    summary_calls: int = 0
    bill: dict[str, int] = field(default_factory=dict)
    in_view: list[str] = field(default_factory=list)
    read_back: list[str] = field(default_factory=list)
    summarized: list[str] = field(default_factory=list)
    kept_results: int = 0


@dataclass
class Play:
    """The state of a play that is shared with the framework."""

    task: Task
    variant: Variant
    window: int
    provider: Provider
    toolbox: Toolbox
    measures: Measures

    @property
    def model(self) -> str:
        """The name of the model. The provider takes its window from the name."""
        return f"{self.variant.model}+window={self.window}"

    def script(self, turns: list[dict[str, Any]]) -> None:
        """Adds the answers to the next requests with tools. Requests for summaries have none."""
        body = {"match": {"model": self.model, "tools": True}, "window": self.window, "turns": turns}
        data = json.dumps(body).encode()
        urllib.request.urlopen(f"{self.provider.url}/_control/script", data).close()

    def used(self, tokens: int) -> None:
        """Records the input of an answered request."""
        self.measures.largest = max(self.measures.largest, tokens)

    def summary_of(self, text: str) -> None:
        """Records the needles that a model for summaries has seen."""
        seen = self.measures.summarized
        seen += [it.name for it in self.task.needles if it.text in text and it.name not in seen]


def play(task: Task, variant: Variant, window: int, run: Callable[[Play], None]) -> Measures:
    """Plays a task with a variant and returns its measures."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        provider = Provider(folder)
        stack.callback(provider.stop)
        # A real deployment needs this entry only for a model that the table of the server does not contain.
        config = folder / "palimpsest.toml"
        entry = f'[[models]]\nnames = ["*"]\nwindow_tokens = {window}\nmax_output_tokens = {MAX_OUTPUT}\n'
        config.write_text(entry)
        if variant.needs_server:
            server = Server(folder / "data", "--config", str(config))
            stack.callback(server.stop)
            os.environ["PALIMPSEST_URL"] = server.url
        state = Play(task, variant, window, provider, Toolbox(task), Measures(variant.label))
        run(state)
        _read_provider(state)
        return state.measures


def conversation(state: Play, ask: Callable[[str], None]) -> None:
    """Asks every question of the task, and at the end for the needles. Stops at the first error."""
    turns = [
        (turn.request, [_scripted(it.text, it.calls) for it in turn.rounds] + [{"text": turn.answer}])
        for turn in state.task.turns
    ]
    answer = "The report: " + ". ".join(it.text for it in state.task.needles)
    turns.append((state.task.question, [*_read_back(state), {"text": answer}]))
    for request, scripted in turns:
        state.script(scripted)
        try:
            ask(request)
            state.measures.turns += 1
        except Exception as error:
            state.measures.error = str(error)
            return
        finally:
            state.measures.calls = state.toolbox.calls


def _scripted(text: str, calls: Any) -> dict[str, Any]:
    return {"text": text, "thinking": text, "calls": [{"name": it.tool, "input": it.arguments} for it in calls]}


def _read_back(state: Play) -> list[dict[str, Any]]:
    """Returns the round in which the model searches for what it was asked for."""
    if not state.variant.search:
        return []
    searches = [state.variant.search(it.pattern) for it in state.task.needles]
    return [{"text": "I search for it.", "calls": searches}]


def _read_provider(state: Play) -> None:
    request = urllib.request.Request(f"{state.provider.url}/_control/bill", headers={"x-api-key": KEY})
    with urllib.request.urlopen(request) as response:
        state.measures.bill = json.load(response)
    state.measures.summary_calls = state.measures.bill["requests"] - state.measures.model_calls
    requests = [it for it in state.provider.requests(state.model) if it["body"].get("tools")]
    state.measures.refused += sum(it["status"] >= 400 for it in requests)
    views = [text for it in requests if state.task.question in (text := _texts(cleared(it["body"])))]
    if views:
        state.measures.in_view = _found(state.task.needles, views[0])
        state.measures.read_back = _found(state.task.needles, views[-1])


def cleared(body: dict[str, Any]) -> dict[str, Any]:
    """Returns a request as its model sees it: Anthropic clears old tool results, if the request asks for that."""
    edits = body.get("context_management", {}).get("edits", [])
    if not edits or len(_texts(body)) / 4 <= edits[0]["trigger"]["value"]:
        return body
    results = [
        block
        for message in body["messages"]
        for block in (message["content"] if isinstance(message["content"], list) else [])
        if block.get("type") == "tool_result"
    ]
    for block in results[:-3]:
        block["content"] = ""
    return body


def _found(needles: tuple[Needle, ...], text: str) -> list[str]:
    return [it.name for it in needles if it.text in text]


def _texts(value: Any) -> str:
    """Returns all texts of a request, one below the other."""
    if isinstance(value, str):
        return value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return "\n".join(_texts(it) for it in parts)
