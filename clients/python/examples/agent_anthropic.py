"""An agent with the SDK of Anthropic: python agent_anthropic.py "Why did the build fail?"."""

import os
import sys
from typing import Any

import anthropic

from palimpsest import Palimpsest  # glue
from palimpsest.anthropic import ManagedMessages  # glue

MODEL = os.environ.get("MODEL", "claude-sonnet-4-5")
TOOLS = [{"name": "read_log", "description": "Reads the build's log.", "input_schema": {"type": "object"}}]


def read_log() -> str:
    """Returns a large log. The service stores it, and the model gets a preview and a reference."""
    return "".join(f"step {n}: compiled, and nothing was wrong\n" for n in range(5_000)) + "disk full\n"


def main(text: str) -> str:
    """Answers a question. The model reads the stored log with the tools of the service."""
    messages: list[Any] = [{"role": "user", "content": text}]
    context = Palimpsest().session("demo", os.environ.get("PALIMPSEST_SESSION", "agent"))  # glue
    # The breakpoints let the provider read the unchanged beginning of each prompt from its cache.
    model = ManagedMessages(anthropic.Anthropic().messages, context, cache_breakpoints=True)  # glue
    # `run` calls the tools until the model answers. A prompt that is rejected as too long is sent again, shortened.
    response = model.run({"read_log": read_log}, model=MODEL, max_tokens=1_024, messages=messages, tools=TOOLS)  # glue
    return "".join(block.text for block in response.content if block.type == "text")


if __name__ == "__main__":
    print(main(" ".join(sys.argv[1:])))
