"""Plays a task with an agent of LangChain4j and the Chat Completions API of OpenAI."""

from __future__ import annotations

import program
from play import Play


def run(state: Play) -> None:
    """Plays the task."""
    program.run(state, ["java", "-jar", str(program.BUILT / "java/agents.jar"), "langchain4j"])
