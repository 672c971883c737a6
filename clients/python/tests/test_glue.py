"""Checks the numbers of lines that exist because of Palimpsest, in the examples and in the pages of frameworks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
EXAMPLES = REPOSITORY / "clients/python/examples"
COUNT = EXAMPLES.parent / "scripts/count-glue"
CHECK = REPOSITORY / "scripts/check-glue"
# The agents with the SDK of a provider. All other counted examples have an adapter.
MAIN = {"agent_anthropic.py", "agent_openai.py"}
# The loop by hand, which the README names as such.
BY_HAND = "agent.py"


def count(folder: Path) -> tuple[dict[str, int], list[str]]:
    """Returns the lines of each example, and the places where a comment is missing."""
    counted = subprocess.run([sys.executable, COUNT, folder], capture_output=True, text=True)
    missing = re.findall(r"^(\S+:\d+): add the comment", counted.stderr, re.MULTILINE)
    assert counted.returncode == bool(missing), counted.stderr
    return {
        name: int(lines) for name, lines in re.findall(r"^(\S+): (\d+) lines$", counted.stdout, re.MULTILINE)
    }, missing


def test_an_example_has_at_most_five_lines_and_with_an_adapter_three() -> None:
    lines, missing = count(EXAMPLES)
    assert missing == []
    assert {BY_HAND, *lines} == {it.name for it in EXAMPLES.glob("*.py")}
    assert {name: it for name, it in lines.items() if it > (5 if name in MAIN else 3)} == {}
    assert lines.keys() > MAIN
    assert "# glue" not in (EXAMPLES / BY_HAND).read_text()


def test_lines_without_the_comment_are_found(tmp_path: Path) -> None:
    for name in MAIN:
        (tmp_path / name).write_text((EXAMPLES / name).read_text().replace("  # glue", ""))
    # The loop by hand, with an import and a variable that hide the name, and calls on several lines.
    source = (EXAMPLES / BY_HAND).read_text().replace("import Palimpsest", "import Palimpsest as Service")
    source = source.replace("Palimpsest()", "Service(\n)").replace("view = ", "view = reply = ")
    (tmp_path / "hidden.py").write_text(source.replace("view.", "reply."))
    lines, missing = count(tmp_path)
    assert lines == {"agent_anthropic.py": 5, "agent_openai.py": 5, "hidden.py": 10}
    assert len(missing) == 20


def test_the_readme_begins_with_five_lines(tmp_path: Path) -> None:
    code = (EXAMPLES.parent / "README.md").read_text().split("```python\n")[1].split("```")[0]
    assert code.count("  # Palimpsest\n") == 5
    (tmp_path / "readme.py").write_text(code.replace("  # Palimpsest\n", "  # glue\n"))
    assert count(tmp_path) == ({"readme.py": 5}, [])


@pytest.mark.parametrize("language", ["Python", "TypeScript", "Go", "Java"])
def test_the_pages_state_the_counted_lines(language: str) -> None:
    checked = subprocess.run([CHECK, language], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    lines = dict(re.findall(r"^(\S+): (\d+) lines in the table, [\d ]+ counted$", checked.stdout, re.MULTILINE))
    table = (CHECK.parents[1] / "docs/frameworks/README.md").read_text()
    assert len(lines) == table.count(f" | {language} | ") > 0
    assert {page: it for page, it in lines.items() if int(it) > 3} == {}
