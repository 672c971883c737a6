"""Runs the code of the pages of frameworks against real servers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from test_readme import ANSWER, CALL, HERE, READ_BACK, environment, run

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
    # Claude Code reads and writes no file of the user.
    for variable in ("HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    for variable in ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER"):
        monkeypatch.setenv(variable, "1")
    for model in ("claude-sonnet-4-5", "gpt-5-mini"):
        provider.script(model, *TURNS[name])
    page = (HERE.parent.parent / "docs" / "frameworks" / f"{name}.md").read_text()
    blocks = re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL)
    assert {kind for kind, _ in blocks} == {"python", "text"}
    program = "\n".join(text for kind, text in blocks if kind == "python")
    assert run("-c", program) == "".join(text for kind, text in blocks if kind == "text")
