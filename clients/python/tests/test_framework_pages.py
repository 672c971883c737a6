"""Runs the code of the pages about frameworks in `docs/frameworks`, against real servers.

A page begins with a program without Palimpsest. A `diff` makes another program of it, and later blocks of Python
continue that. The `text` blocks of a program are its output. A `toml` is a configuration of the server.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from test_readme import ANSWER, CALL, READ_BACK, environment, run

from world import SERVER, Provider

PAGES = Path(__file__).parents[3] / "docs/frameworks"
pytestmark = pytest.mark.usefixtures(environment.__name__)


def patched(program: str, diff: str) -> str:
    """Returns the program after a diff. Its hunks have no line numbers."""
    for hunk in diff.split("@@\n"):
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[0] in " -")
        new = "".join(line[1:] for line in lines if line[0] in " +")
        assert program.count(old) == 1, hunk
        program = program.replace(old, new)
    return program


def programs(page: str) -> list[tuple[str, str]]:
    """Returns the programs of a page with their outputs."""
    found: list[tuple[str, str]] = []
    base = ""
    for kind, body in re.findall(r"```(python|diff|text)\n(.*?)```", page, re.DOTALL):
        if kind == "text":
            program, output = found.pop()
            found.append((program, output + body))
        elif kind == "python" and base:
            program, output = found.pop()
            found.append((program + body, output))
        else:
            base = patched(base, body) if kind == "diff" else body
            found.append((base, ""))
    return found


@pytest.mark.parametrize(("page", "model"), [("langchain.md", "claude-sonnet-4-5"), ("openai-agents.md", "gpt-5.1")])
def test_the_code_of_a_page_runs(page: str, model: str, provider: Provider, tmp_path: Path) -> None:
    text = (PAGES / page).read_text()
    found = programs(text)
    assert ["palimpsest" in program for program, _ in found] == [False, True, False]
    for program, output in found:
        searches = [READ_BACK] if "palimpsest" in program else []
        provider.script(model, CALL, *searches, ANSWER)
        assert run("-c", program) == output
    for block in re.findall(r"```toml\n(.*?)```", text, re.DOTALL):
        config = tmp_path / "palimpsest.toml"
        config.write_text(block)
        # Without the variables of the tests, which the server would reject as unknown settings.
        check = [SERVER, "config", "--check", "--config", str(config)]
        checked = subprocess.run(check, env={}, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr
