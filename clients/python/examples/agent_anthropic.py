"""An agent with the SDK of Anthropic: python agent_anthropic.py "Why did the build fail?"."""

import os
import sys
from typing import Any

import anthropic

from palimpsest import Palimpsest  # glue
from palimpsest.anthropic import ManagedMessages  # glue

MODEL = os.environ.get("MODEL", "claude-sonnet-4-5")
SESSION = os.environ.get("PALIMPSEST_SESSION", "agent")
TOOLS = [{"name": "read_log", "description": "Reads the build's log.", "input_schema": {"type": "object"}}]


def read_log() -> str:
    """Returns a large log. The service stores it, and the model gets a preview and a reference."""
    return "".join(f"step {n}: compiled, and nothing was wrong\n" for n in range(5_000)) + "disk full\n"


def main(text: str) -> str:
    """Answers a question. The model reads the stored log with the tools of the service."""
    context = Palimpsest().session("demo", SESSION)  # glue
    model = ManagedMessages(anthropic.Anthropic().messages, context)  # glue
    messages: list[Any] = [{"role": "user", "content": text}]
    while True:
        # A view that is not sendable raises, and a prompt that the provider rejects as too long is shortened.
        response = model.create(model=MODEL, max_tokens=1_024, messages=messages, tools=TOOLS)
        messages += context.answer(response, {"read_log": read_log})  # glue
        if response.stop_reason != "tool_use":
            return "".join(block.text for block in response.content if block.type == "text")


if __name__ == "__main__":
    print(main(" ".join(sys.argv[1:])))
