"""The servers of the tests: Palimpsest, and the strict fake provider of models."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

SERVER = os.environ["PALIMPSEST_BINARY"]
PROVIDER = os.environ["PALIMPSEST_FAKE_PROVIDER"]
# A log that the service stores and replaces by a preview. Only its last line has the cause.
LOG = "".join(f"step {n}: compiled, and nothing was wrong\n" for n in range(5_000)) + "disk full\n"
# An image with one pixel, in base64.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
# A reported usage that no estimate of a test reaches.
USAGE = {"input": 70_000, "read": 10_000, "written": 5_000, "output": 50}
READ_LOG = "Reads the log of the build."
ANTHROPIC_TOOL = {"name": "read_log", "description": READ_LOG, "input_schema": {"type": "object"}}
CHAT_TOOL = {
    "type": "function",
    "function": {"name": "read_log", "description": READ_LOG, "parameters": {"type": "object"}},
}
RESPONSES_TOOL = {
    "type": "function",
    "name": "read_log",
    "description": READ_LOG,
    "parameters": {"type": "object"},
    "strict": False,
}


ANSWER = "Its disk was full."
CALL: dict[str, Any] = {"text": "I look.", "calls": [{"name": "read_log"}, {"name": "read_log"}]}
# Reads the stored result back and calls the tool of the agent, both in parallel.
READ_BACK: dict[str, Any] = {
    "calls": [{"name": "SearchTranscript", "input": {"pattern": "disk full"}}, {"name": "read_log"}]
}
TURNS = [CALL, READ_BACK, {"text": ANSWER}]
# Found by the search of a turn, and in no call of the model.
FOUND = "step 4999"


def fill(session: Any) -> None:
    """Gives a session a conversation. Another one under its name then goes to a lane."""
    session.sync(model="m", messages=[{"role": "user", "content": "Another conversation."}], tools=[ANTHROPIC_TOOL])


def read_log() -> str:
    return LOG


class Program:
    """A program that ends with the test. Its output goes to a file, because nobody reads a pipe."""

    def __init__(self, output: Path, *command: str) -> None:
        self._output = output
        with output.open("w") as file:
            # The server rejects variables with its prefix that are no settings.
            env = {name: value for name, value in os.environ.items() if not name.startswith("PALIMPSEST_")}
            env["PALIMPSEST_ADMIN_LISTEN"] = "127.0.0.1:0"
            self.process = subprocess.Popen(command, stdout=file, stderr=file, env=env)

    def line(self, part: str) -> str:
        """Waits for the first line with a text."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.process.poll() is None:
            for line in self._output.read_text().splitlines(keepends=True):
                if part in line and line.endswith("\n"):
                    return line
            time.sleep(0.02)
        raise AssertionError(f"no line with {part}: {self._output.read_text()}")

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(how)
        self.process.wait()


class Server(Program):
    """A server of Palimpsest. A restart keeps the address and the data."""

    def __init__(self, folder: Path, *arguments: str, listen: str = "127.0.0.1:0") -> None:
        command = [SERVER, "serve", "--listen", listen, "--data-dir", str(folder), "--log-format", "json"]
        super().__init__(folder.with_suffix(".log"), *command, *arguments)
        self.address: str = json.loads(self.line('"serving"'))["grpc"]
        self.url = self.at("http")

    def at(self, scheme: str) -> str:
        """Returns the URL for a transport. One port serves HTTP and gRPC."""
        return f"{scheme}://{self.address}"


class Provider(Program):
    """The fake provider. Each test has a model of its own, so that its script answers no other test."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "provider.log", PROVIDER)
        self.url = self.line("http://").strip()

    def script(self, model: str, *turns: dict[str, Any]) -> None:
        body = json.dumps({"match": {"model": model}, "turns": turns}).encode()
        urllib.request.urlopen(f"{self.url}/_control/script", body).close()

    def requests(self, model: str) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{self.url}/_control/requests") as response:
            recorded = json.load(response)["requests"]
        return [it for it in recorded if it["body"].get("model", "").startswith(model)]


def sent(provider: Provider, model: str) -> list[str]:
    """Returns the arrays that a model received. All requests were accepted."""
    requests = provider.requests(model)
    assert {it["status"] for it in requests} == {200}, [it for it in requests if it["status"] != 200]
    return [str(it["body"].get("messages") or it["body"]["input"]) for it in requests]
