"""An agent with the SDK of OpenAI, without a helper: python agent_openai.py "Why did the build fail?"."""

import os
import sys
from typing import Any

import openai

from palimpsest import Palimpsest, is_too_long  # glue

MODEL = os.environ.get("MODEL", "gpt-5")
SESSION = os.environ.get("PALIMPSEST_SESSION", "agent-openai")
READ_LOG = {"name": "read_log", "description": "Reads the build's log.", "parameters": {"type": "object"}}
TOOLS = [{"type": "function", "function": READ_LOG}]


def read_log() -> str:
    """Returns a large log. The service stores it, and the model gets a preview and a reference."""
    return "".join(f"step {n}: compiled, and nothing was wrong\n" for n in range(5_000)) + "disk full\n"


def main(text: str) -> str:
    """Answers a question. The model reads the stored log with the tools of the service."""
    context = Palimpsest().session("demo", SESSION, "openai_chat")  # glue
    client = openai.OpenAI()
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    tools = [*TOOLS, *context.tools()]  # glue
    too_long = None
    while True:
        view = context.sync(model=MODEL, messages=messages, tools=tools, too_long=too_long)  # glue
        if not view.sendable:
            raise SystemExit(f"The conversation cannot be sent: {view.not_sendable_reason}")
        try:
            response = client.chat.completions.create(**view.request)
        except openai.APIStatusError as error:
            if too_long or not is_too_long(error):
                raise
            # The next sync returns a shorter view.
            too_long = error
            continue
        too_long = None
        messages += context.answer(response, {"read_log": read_log})  # glue
        if not response.choices[0].message.tool_calls:
            return response.choices[0].message.content or ""


if __name__ == "__main__":
    print(main(" ".join(sys.argv[1:])))
