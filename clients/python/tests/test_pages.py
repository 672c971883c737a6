"""Runs the code of the pages of frameworks, and the examples of frameworks, against real servers."""

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
FIRST: dict[str, Any] = {"text": "The first one."}
LOG = [CALL, READ_BACK, ANSWER]
TURNS: dict[str, list[dict[str, Any]]] = {
    "openai-agents-session": [*LOG, YES],
    "claude-agent": [ANSWER, YES],
    "llama-index": [*LOG, YES],
    "pydantic-ai": [*LOG, FIRST, YES],
    "strands": [*LOG, FIRST, YES],
    "google-adk": [*LOG, FIRST, YES],
}
EXAMPLES = ["openai-agents", "langchain", "llama-index", "pydantic-ai", "strands", "google-adk"]
NEEDS_3_11 = {"pydantic-ai", "google-adk"}


@pytest.fixture
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    framework = str(request.param)
    if framework in NEEDS_3_11 and sys.version_info < (3, 11):
        pytest.skip("the framework needs Python 3.11")
    if framework == "llama-index":
        # This framework has an environment of its own.
        monkeypatch.setenv("INSTALLED_PYTHON", os.environ.get("LLAMA_INDEX_PYTHON", sys.executable))
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    return framework


@pytest.mark.parametrize("name", TURNS, indirect=True)
@pytest.mark.usefixtures("environment")
def test_the_code_of_the_page_runs(
    provider: Provider, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Claude Code reads and writes no file of the user.
    for variable in ("HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    for variable in ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER"):
        monkeypatch.setenv(variable, "1")
    provider.script("gpt-5-mini" if "openai" in name else "claude-sonnet-4-5", *TURNS[name])
    page = (HERE.parent.parent / "docs" / "frameworks" / f"{name}.md").read_text()
    blocks = re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL)
    assert {kind for kind, _ in blocks} == {"python", "text"}
    program = "\n".join(text for kind, text in blocks if kind == "python")
    assert run("-c", program) == "".join(text for kind, text in blocks if kind == "text")


@pytest.mark.parametrize("name", EXAMPLES, indirect=True)
@pytest.mark.usefixtures("environment")
def test_the_example_runs(provider: Provider, name: str) -> None:
    # The model classes of LlamaIndex know the names of models of Anthropic only.
    model = "claude-opus-4-1" if name == "llama-index" else f"fake-{name}"
    # The filter of the OpenAI Agents SDK cannot repeat a model call.
    rejection: list[dict[str, Any]] = [] if name == "openai-agents" else [{"fault": {"html": 413}}]
    provider.script(model, CALL, READ_BACK, *rejection, ANSWER)
    example = HERE / "examples" / f"agent_{name.replace('-', '_')}.py"
    assert run(str(example), QUESTION, model=model) == "Its disk was full.\n"
    requests = provider.requests(model)
    assert [it["status"] for it in requests] == [200, 200, *[413 for _ in rejection], 200]
    sent = [str(it["body"].get("messages") or it["body"]["input"]) for it in requests]
    assert ["palimpsest://" in it for it in sent[:3]] == [False, True, True]
    assert "disk full" not in sent[1]
    assert "disk full" in sent[2]
    if rejection:
        assert len(sent[3]) < len(sent[2])
