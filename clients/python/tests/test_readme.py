"""Runs the code of the README, and the examples, against real servers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from world import Provider, Server

HERE = Path(__file__).parent.parent
CALL: dict[str, Any] = {"calls": [{"name": "read_log"}]}
READ_BACK = {"calls": [{"name": "SearchTranscript", "input": {"pattern": "disk full"}}]}
QUESTION = "Why did the build fail?"
ANSWER: dict[str, Any] = {"text": "Its disk was full."}


@pytest.fixture
def environment(tmp_path: Path, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> Any:
    server = Server(tmp_path / "data")
    monkeypatch.setenv("PALIMPSEST_URL", server.url)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
    monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "key")
    yield
    server.stop()


def run(*command: str, model: str = "") -> str:
    """Runs a program with the interpreter of an environment that has the wheel, and not the sources."""
    python = os.environ.get("INSTALLED_PYTHON", sys.executable)
    env = {**os.environ, "MODEL": model}
    done = subprocess.run([python, *command], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("environment")
def test_the_code_of_the_readme_runs(provider: Provider) -> None:
    answers = [{"text": "Yes."}, {"text": "The first one."}]
    provider.script("claude-sonnet-4-5", CALL, READ_BACK, ANSWER, *answers, CALL, ANSWER)
    provider.script("claude-opus-4-5", {"calls": [{"name": "read_the_log"}]}, ANSWER)
    provider.script("gpt-5-mini", {"calls": [{"name": "read_the_log"}]}, ANSWER)
    blocks = re.findall(r"```(python|text)\n(.*?)```", (HERE / "README.md").read_text(), re.DOTALL)
    program = "\n".join(text for kind, text in blocks if kind == "python")
    assert run("-c", program) == "".join(text for kind, text in blocks if kind == "text")
    assert len(blocks) == 20


@pytest.mark.parametrize("example", ["agent.py", "agent_anthropic.py", "agent_openai.py"])
@pytest.mark.usefixtures("environment")
def test_the_examples_run(provider: Provider, example: str) -> None:
    model = f"fake-{example}"
    provider.script(model, CALL, READ_BACK, ANSWER)
    assert run(str(HERE / "examples" / example), QUESTION, model=model) == "Its disk was full.\n"
    sent = [str(it["body"]["messages"]) for it in provider.requests(model)]
    assert ["palimpsest://" in it for it in sent] == [False, True, True]
    assert ["disk full" in it for it in sent] == [False, False, True]


@pytest.mark.parametrize("example", ["agent.py", "agent_anthropic.py", "agent_openai.py"])
@pytest.mark.usefixtures("environment")
def test_the_examples_send_a_shorter_prompt_after_a_rejection(provider: Provider, example: str) -> None:
    model = f"rejects-{example}"
    provider.script(model, CALL, READ_BACK, {"fault": {"html": 413}}, ANSWER)
    assert run(str(HERE / "examples" / example), QUESTION, model=model) == "Its disk was full.\n"
    requests = provider.requests(model)
    assert [it["status"] for it in requests] == [200, 200, 413, 200]
    assert len(str(requests[3]["body"]["messages"])) < len(str(requests[2]["body"]["messages"]))
