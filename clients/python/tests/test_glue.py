"""Checks the numbers of lines that exist because of Palimpsest, in the pages of frameworks for Python."""

from __future__ import annotations

import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "scripts/check-glue"


def test_the_pages_state_the_counted_lines() -> None:
    checked = subprocess.run([SCRIPT, "Python"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout.count("counted") == 8
