"""An agent with the SDK of OpenAI: python agent_openai.py "Why did the build fail?"."""

import os
import sys
from typing import Any

import openai

from palimpsest import Palimpsest  # glue
from palimpsest.openai import ManagedCompletions  # glue

MODEL = os.environ.get("MODEL", "gpt-5")
READ_LOG = {"name": "read_log", "description": "Reads the build's log.", "parameters": {"type": "object"}}
TOOLS = [{"type": "function", "function": READ_LOG}]


def read_log() -> str:
    """Returns a large log. The service stores it, and the model gets a preview and a reference."""
    return "".join(f"step {n}: compiled, and nothing was wrong\n" for n in range(5_000)) + "disk full\n"


def main(text: str) -> str:
    """Answers a question. The model reads the stored log with the tools of the service."""
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    context = Palimpsest().session("demo", os.environ.get("PALIMPSEST_SESSION", "agent-openai"))  # glue
    model = ManagedCompletions(openai.OpenAI().chat.completions, context)  # glue
    # `run` calls the tools until the model answers. A prompt that is rejected as too long is sent again, shortened.
    response = model.run({"read_log": read_log}, model=MODEL, messages=messages, tools=TOOLS)  # glue
    return response.choices[0].message.content or ""


if __name__ == "__main__":
    print(main(" ".join(sys.argv[1:])))
