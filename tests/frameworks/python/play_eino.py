"""Plays a task with an agent of eino and the Chat Completions API of OpenAI."""

from __future__ import annotations

import program
from play import Play


def run(state: Play) -> None:
    """Plays the task."""
    program.run(state, [str(program.BUILT / "go/agent")])
