"""Plays a task with an agent that is a program in another language. Both exchange lines of JSON.

The first line for the program describes the agent: `variant`, `model`, `url`, `key`, `max_output`, `window`, `system` and
`tools`, with the description of each argument. Then the program answers each request:

    {"ask": "…"}         the input of the user. Before its answer, the program may write the two lines below
    {"answer": "…"}      the last text of the model, or {"error": "…"}
    {"stored": true}     asks for the results of tools that the framework has stored
    {"stored": ["…"]}

    {"call": {"tool": "…", "arguments": {…}}}    runs a tool. The next line is {"result": "…"}
    {"used": 1}                                  the input tokens of an answered request
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from play import KEY, MAX_OUTPUT, Play, conversation

#: The folder with the programs, which `tests/frameworks/run` builds.
BUILT = Path(os.environ.get("FRAMEWORKS_OUT", "target/frameworks"))
#: The call with which the model searches removed content, by variant.
SEARCHES: dict[str, Callable[[str], dict[str, Any]]] = {
    "palimpsest": lambda pattern: {"name": "SearchTranscript", "input": {"pattern": pattern}},
    "reduction_files": lambda pattern: {
        "name": "grep",
        "input": {"pattern": pattern, "path": "/", "output_mode": "content"},
    },
}


def run(state: Play, command: list[str]) -> None:
    """Plays the task with this program."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        program = Program(process)
        try:
            program.send(
                variant=state.variant.name,
                model=state.model,
                url=state.provider.url,
                key=KEY,
                max_output=MAX_OUTPUT,
                window=state.window,
                system=state.task.system,
                tools=state.task.tools,
            )
            conversation(state, lambda text: program.ask(state, text))
            if program.is_waiting:
                program.send(stored=True)
                state.kept(set(program.receive()["stored"]))
                program.close()
                assert process.wait(60) == 0, f"{command[0]} ended with {process.returncode}"
        finally:
            process.kill()


class Program:
    """The lines to and from a running program."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin and process.stdout
        self._input, self._output = process.stdin, process.stdout
        #: False while the program works on an input, and after a failure of the harness within one.
        self.is_waiting = True

    def close(self) -> None:
        """Ends the lines, so that the program ends."""
        self._input.close()

    def send(self, **message: Any) -> None:
        """Writes a line."""
        self._input.write(json.dumps(message) + "\n")
        self._input.flush()

    def receive(self) -> dict[str, Any]:
        """Reads a line."""
        line = self._output.readline()
        if not line:
            raise EOFError("the program has ended before its answer")
        message: dict[str, Any] = json.loads(line)
        return message

    def ask(self, state: Play, text: str) -> None:
        """Sends an input of the user, and runs the tools until the answer."""
        self.is_waiting = False
        self.send(ask=text)
        while "answer" not in (message := self.receive()):
            if "error" in message:
                self.is_waiting = True
                raise RuntimeError(message["error"])
            if "used" in message:
                state.used(message["used"])
            else:
                call = message["call"]
                self.send(result=state.toolbox.run(call["tool"], call["arguments"]))
        self.is_waiting = True
