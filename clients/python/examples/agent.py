"""An agent on Palimpsest with the SDK of Anthropic: `python agent.py "Why did the build fail?"`."""

import os
import sys
from typing import Any

import anthropic

from palimpsest import Palimpsest  # glue
from palimpsest.anthropic import ManagedMessages  # glue

MODEL = os.environ.get("MODEL", "claude-sonnet-4-5")
TOOLS = [{"name": "read_log", "description": "Reads the build's log.", "input_schema": {"type": "object"}}]


def read_log() -> str:
    """Returns a log that is too large for the context window to keep."""
    return "".join(f"step {n}: compiled, and nothing was wrong\n" for n in range(5_000)) + "disk full\n"


def main(text: str) -> str:
    """Answers a question with the tool."""
    context = Palimpsest().session("demo", os.environ.get("PALIMPSEST_SESSION", "agent"))  # glue
    model = ManagedMessages(anthropic.Anthropic().messages, context)  # glue
    messages: list[Any] = [{"role": "user", "content": text}]
    while True:
        response = model.create(model=MODEL, max_tokens=1_024, messages=messages, tools=TOOLS)
        messages += context.answer(response, {"read_log": read_log})
        if response.stop_reason != "tool_use":
            return "".join(block.text for block in response.content if block.type == "text")


if __name__ == "__main__":
    print(main(" ".join(sys.argv[1:])))
