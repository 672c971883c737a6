"""Runs the code of the README, and the examples, against real servers."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from world import Provider, Server

HERE = Path(__file__).parent.parent
README = HERE / "README.md"
REPOSITORY = HERE.parent.parent
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


def blocks(wanted: str) -> list[tuple[str, str]]:
    """Returns the blocks of a kind in the README. Each has the output that follows it."""
    found: list[tuple[str, str, str]] = []
    for kind, body in re.findall(r"^```(\w*)\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE):
        # Blocks of another kind would not be checked.
        assert kind in ("python", "sh", "text"), kind
        if kind == "text":
            kind, code, output = found.pop()
            found.append((kind, code, output + body))
        else:
            found.append((kind, body, ""))
    return [(code, output) for kind, code, output in found if kind == wanted]


@pytest.mark.usefixtures("environment")
def test_the_code_of_the_readme_runs(provider: Provider) -> None:
    answers = [{"text": "Yes."}, {"text": "The first one."}]
    provider.script("claude-sonnet-4-5", CALL, READ_BACK, ANSWER, *answers, CALL, ANSWER)
    provider.script("claude-opus-4-5", {"calls": [{"name": "read_the_log"}]}, ANSWER)
    provider.script("gpt-5-mini", {"calls": [{"name": "read_the_log"}]}, ANSWER)
    found = blocks("python")
    assert run("-c", "\n".join(code for code, _ in found)) == "".join(output for _, output in found)
    assert len(found) == 10


@pytest.mark.usefixtures("environment")
def test_the_commands_of_the_readme_work(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    provider.script("claude-sonnet-4-5", CALL, READ_BACK, ANSWER)
    section = (HERE / "pyproject.toml").read_text().split("[project.optional-dependencies]\n")[1].split("\n[")[0]
    extras = set(re.findall(r"^([\w-]+) = ", section, re.MULTILINE))
    # The packages that the tests use.
    pinned = set(re.findall(r"^([\w-]+)==", (HERE / "requirements.txt").read_text(), re.MULTILINE))
    shell = [(line, output) for body, output in blocks("sh") for line in body.splitlines()]
    inline = re.findall(r"`(pip install [^`]*)`", README.read_text())
    for command, output in [*shell, *((it, "") for it in inline)]:
        program, *arguments = shlex.split(command)
        if program == "python":
            assert run(*arguments, model="claude-sonnet-4-5") == output
        else:
            assert [program, arguments[0]] == ["pip", "install"], command
            package, names = arguments[1].rstrip("]").split("[")
            assert Path(package).resolve() == HERE
            assert set(names.split(",")) <= extras, command
            assert set(arguments[2:]) <= pinned, command
    assert len(shell) == len(inline) == 2


@pytest.mark.usefixtures("environment")
def test_the_example_for_anthropic_reads_the_prompt_from_the_cache(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A key of its own has a bill of its own.
    model = "fake-cached-example"
    monkeypatch.setenv("ANTHROPIC_API_KEY", model)
    provider.script(model, CALL, READ_BACK, ANSWER)
    run(str(HERE / "examples/agent_anthropic.py"), QUESTION, model=model)
    sent = [it["body"]["messages"] for it in provider.requests(model)]
    for messages in sent:
        assert messages[-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}
    # The last block of the request before has a breakpoint too, so that the provider finds this prefix.
    for before, after in itertools.pairwise(sent):
        assert after[len(before) - 1]["content"][-1] == before[-1]["content"][-1]
    request = urllib.request.Request(f"{provider.url}/_control/bill", headers={"x-api-key": model})
    with urllib.request.urlopen(request) as response:
        bill = json.load(response)
    # The provider caches no prompt below 1,024 tokens.
    assert bill["cache_read_tokens"] >= 1_024, bill


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
