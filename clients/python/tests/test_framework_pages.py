"""Runs the code of the pages about frameworks in `docs/frameworks`, against real servers.

A page begins with a program without Palimpsest. A `diff` makes another program of it, and later blocks of Python
continue that. The `text` blocks of a program are its output. A `toml` is a configuration of the server.

The tables of measured figures are those that the recorded run gives.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_readme import ANSWER, CALL, READ_BACK, environment, run

from world import SERVER, Provider

PAGES = Path(__file__).parents[3] / "docs/frameworks"
FIGURES = PAGES.parents[1] / "tests/frameworks/python/figures.py"
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


def differences(folder: Path) -> list[str]:
    """Returns the tables that differ from the recorded figures."""
    command: list[str | Path] = [sys.executable, FIGURES, "--check", "--folder", folder]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == bool(checked.stderr), checked.stderr
    return checked.stderr.splitlines()


def test_the_tables_have_the_recorded_figures() -> None:
    assert differences(PAGES) == []


def test_another_number_and_a_missing_play_are_found(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(PAGES, tmp_path / "pages"))
    for page, row in [("README.md", "Palimpsest: "), ("strands.md", "Palimpsest: "), ("mastra.md", "| session, limit")]:
        before, last = (folder / page).read_text().rsplit(row, 1)
        (folder / page).write_text(before + row + last.replace(" | ", " | 7", 1))
    figures = folder / "figures.json"
    lines = figures.read_text().splitlines(keepends=True)
    missing = next(it for it in lines if '"llama_index", "variant": "memory", "task": "short"' in it)
    figures.write_text("".join(it for it in lines if it is not missing))
    found = differences(folder)
    pages = {it.split(":")[0] for it in found}
    assert pages == {"README.md", "strands.md", "mastra.md", "llama-index.md", "figures.json"}
