"""Runs the code of the pages of frameworks against real servers."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from test_readme import ANSWER, CALL, HERE, QUESTION, READ_BACK, environment, run

from world import Provider

__all__ = ["environment"]

YES: dict[str, Any] = {"text": "Yes."}
TURNS: dict[str, list[dict[str, Any]]] = {
    "openai-agents": [CALL, READ_BACK, ANSWER, YES, {"text": "The first one."}],
    "claude-agent": [ANSWER, YES],
    "langchain": [CALL, READ_BACK, ANSWER, YES],
    "llama-index": [CALL, READ_BACK, ANSWER, YES],
}


@pytest.mark.parametrize("name", TURNS)
@pytest.mark.usefixtures("environment")
def test_the_code_of_the_page_runs(
    provider: Provider, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "llama-index":
        # This framework has an environment of its own.
        monkeypatch.setenv("INSTALLED_PYTHON", os.environ.get("LLAMA_INDEX_PYTHON", sys.executable))
    # Claude Code reads and writes no file of the user.
    for variable in ("HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    for variable in ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER"):
        monkeypatch.setenv(variable, "1")
    provider.script("gpt-5-mini" if name == "openai-agents" else "claude-sonnet-4-5", *TURNS[name])
    page = (HERE.parent.parent / "docs" / "frameworks" / f"{name}.md").read_text()
    blocks = re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL)
    assert {kind for kind, _ in blocks} == {"python", "text"}
    program = "\n".join(text for kind, text in blocks if kind == "python")
    assert run("-c", program) == "".join(text for kind, text in blocks if kind == "text")


@pytest.mark.parametrize("name", ["openai_agents", "langchain", "llama_index"])
@pytest.mark.usefixtures("environment")
def test_the_example_runs(provider: Provider, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The model classes of LlamaIndex know the names of models of Anthropic only.
    model = "claude-opus-4-1" if name == "llama_index" else f"fake-{name}"
    if name == "llama_index":
        monkeypatch.setenv("INSTALLED_PYTHON", os.environ.get("LLAMA_INDEX_PYTHON", sys.executable))
    provider.script(model, CALL, READ_BACK, ANSWER)
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    assert run(str(HERE / "examples" / f"agent_{name}.py"), QUESTION, model=model) == "Its disk was full.\n"
    bodies = [it["body"] for it in provider.requests(model)]
    sent = [str(it.get("messages") or it["input"]) for it in bodies]
    assert ["palimpsest://" in it for it in sent] == [False, True, True]
    assert ["disk full" in it for it in sent] == [False, False, True]
