"""One play: a task, a window and a variant, with servers of its own. Returns the measures."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from task import Needle, Round, Task, Toolbox
from variant import Variant

from palimpsest import Palimpsest, Session
from world import Provider, Server

KEY = "key"
#: The longest answer that a request allows. Providers reserve it in the window.
MAX_OUTPUT = 2_048
#: The rounds in which a model searches for the needles.
SEARCHES = 2


@dataclass
class Measures:
    """The outcome of one play."""

    variant: str
    turns: int = 0
    calls: int = 0
    error: str = ""
    refused: int = 0
    largest: int = 0
    summary_calls: int = 0
    bill: dict[str, int] = field(default_factory=dict)
    in_view: list[str] = field(default_factory=list)
    read_back: list[str] = field(default_factory=list)
    searches: int = 0
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

    def kept(self, held: set[Any]) -> None:
        """Records how many results of tools the framework still has."""
        self.measures.kept_results = sum(it in held for it in self.toolbox.returned)

    def used(self, tokens: int) -> None:
        """Records the input of an answered request."""
        self.measures.largest = max(self.measures.largest, tokens)


def play(task: Task, variant: Variant, window: int, run: Callable[[Play], None], settles: bool = True) -> Measures:
    """Plays a task with a variant and returns its measures. If `settles` is false, session memory may lag."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        provider = Provider(folder)
        stack.callback(provider.stop)
        # A real deployment needs this entry only for a model that the table of the server does not contain.
        config = folder / "palimpsest.toml"
        entry = f'[[models]]\nnames = ["*"]\nwindow_tokens = {window}\nmax_output_tokens = {MAX_OUTPUT}\n'
        config.write_text(entry)
        toolbox = Toolbox(task)
        if variant.needs_server:
            server = Server(folder / "data", "--config", str(config))
            stack.callback(server.stop)
            os.environ["PALIMPSEST_URL"] = server.url
            # The name of the session in all variants.
            session = Palimpsest(server.url).session("demo", "t")
            if settles:
                toolbox.before_result = lambda: _settle(session)
        state = Play(task, variant, window, provider, toolbox, Measures(variant.label))
        run(state)
        _read_provider(state)
        return state.measures


def _settle(session: Session) -> None:
    """Waits until session memory is up to date.

    The service updates it at most once per second. A real model takes longer for each response, a scripted one does not.
    """
    deadline = time.monotonic() + 60
    while session.memory()["state"] == "behind":
        assert time.monotonic() < deadline, "the server still updates session memory after a minute"
        time.sleep(0.05)


def conversation(state: Play, ask: Callable[[str], None]) -> None:
    """Asks every question of the task, and at the end for the needles. Stops at the first error."""
    measures = state.measures
    try:
        for turn in state.task.turns:
            state.script([*(_scripted(it) for it in turn.rounds), {"text": turn.answer}])
            ask(turn.request)
            measures.turns += 1
        _ask_for_needles(state, ask)
    except Exception as error:
        measures.error = str(error)
    measures.calls = len(state.toolbox.returned)


def _ask_for_needles(state: Play, ask: Callable[[str], None]) -> None:
    """Asks for the needles. The model searches for those that it does not see, if the variant has a tool for it."""
    measures, needles = state.measures, state.task.needles
    for attempt in range(SEARCHES if state.variant.search else 1):
        missing = [it for it in needles if it.name not in measures.read_back]
        if not missing:
            break
        calls = [state.variant.search(it.pattern) for it in missing] if state.variant.search else []
        searches = [{"text": "I search for it.", "calls": calls}] if calls else []
        state.script([*searches, {"text": "The report is written."}])
        ask(f"{state.task.question} (Attempt {attempt + 1})")
        views = [_texts(cleared(it["body"])) for it in _requests(state)]
        measures.searches += len(searches)
        measures.in_view = measures.in_view or _found(needles, next(it for it in views if state.task.question in it))
        measures.read_back = sorted({*measures.read_back, *_found(needles, views[-1])})
    measures.turns += 1


def _scripted(it: Round) -> dict[str, Any]:
    calls = [{"name": call.tool, "input": call.arguments} for call in it.calls]
    return {"text": it.text, "thinking": it.text, "calls": calls}


def _requests(state: Play, has_tools: bool = True) -> list[dict[str, Any]]:
    """Returns the recorded requests of the agent, or those for summaries, which have no tools."""
    return [it for it in state.provider.requests(state.model) if bool(it["body"].get("tools")) == has_tools]


def _read_provider(state: Play) -> None:
    measures = state.measures
    request = urllib.request.Request(f"{state.provider.url}/_control/bill", headers={"x-api-key": KEY})
    with urllib.request.urlopen(request) as response:
        measures.bill = json.load(response)
    answered = [it["status"] < 400 for it in _requests(state)]
    measures.refused = answered.count(False)
    measures.summary_calls = measures.bill["requests"] - answered.count(True)
    summarized = "\n".join(_texts(it["body"]) for it in _requests(state, has_tools=False))
    measures.summarized = _found(state.task.needles, summarized)


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
    """Returns the needles in a text. ADK sends results as JSON inside of a string, with escaped characters."""
    decoded = re.sub(r"\\+u([0-9a-f]{4})", lambda it: chr(int(it[1], 16)), text).replace("\\", "")
    return [it.name for it in needles if it.text in decoded]


def _texts(value: Any) -> str:
    """Returns all texts of a request, one below the other."""
    if isinstance(value, str):
        return value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return "\n".join(_texts(it) for it in parts)
