"""Runs the pages of frameworks, and their examples, against real servers."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
from test_readme import ANSWER, CALL, HERE, QUESTION, READ_BACK, environment, run

from world import Provider

__all__ = ["environment"]

NEEDS_3_11 = pytest.mark.skipif(sys.version_info < (3, 11), reason="the framework needs Python 3.11")
NAMES = [
    pytest.param("pydantic-ai", marks=NEEDS_3_11),
    pytest.param("strands"),
    pytest.param("google-adk", marks=NEEDS_3_11),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("environment")
def test_the_code_of_the_page_runs(provider: Provider, name: str) -> None:
    answers: list[dict[str, Any]] = [{"text": "The first one."}, {"text": "Yes."}]
    provider.script("claude-sonnet-4-5", CALL, READ_BACK, ANSWER, *answers)
    page = HERE.parent.parent / "docs" / "frameworks" / f"{name}.md"
    blocks = re.findall(r"```(\w+)\n(.*?)```", page.read_text(), re.DOTALL)
    assert {kind for kind, _ in blocks} == {"python", "text"}
    program = "\n".join(text for kind, text in blocks if kind == "python")
    assert run("-c", program) == "".join(text for kind, text in blocks if kind == "text")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("environment")
def test_the_example_runs_and_sends_a_shorter_prompt_after_a_rejection(provider: Provider, name: str) -> None:
    model = f"fake-{name}"
    provider.script(model, CALL, READ_BACK, {"fault": {"html": 413}}, ANSWER)
    example = HERE / "examples" / f"agent_{name.replace('-', '_')}.py"
    assert run(str(example), QUESTION, model=model) == "Its disk was full.\n"
    requests = provider.requests(model)
    assert [it["status"] for it in requests] == [200, 200, 413, 200]
    sent = [str(it["body"]["messages"]) for it in requests]
    assert ["palimpsest://" in it for it in sent[:3]] == [False, True, True]
    assert len(sent[3]) < len(sent[2])
