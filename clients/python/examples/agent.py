"""An agent without an SDK: python agent.py "Why did the build fail?".

This is the loop by hand. `agent_anthropic.py` and `agent_openai.py` are the same agent with the helpers for SDKs.
"""

import os
import sys
from typing import Any

import httpx2

from palimpsest import Palimpsest

URL = os.environ.get("ANTHROPIC_BASE_URL", "https://api.anthropic.com")
HEADERS = {"x-api-key": os.environ.get("ANTHROPIC_API_KEY", ""), "anthropic-version": "2023-06-01"}
MODEL = os.environ.get("MODEL", "claude-sonnet-4-5")
SESSION = os.environ.get("PALIMPSEST_SESSION", "agent")
TOOLS = [{"name": "read_log", "description": "Reads the build's log.", "input_schema": {"type": "object"}}]


def read_log() -> str:
    """Returns a large log. The service stores it, and the model gets a preview and a reference."""
    return "".join(f"step {n}: compiled, and nothing was wrong\n" for n in range(5_000)) + "disk full\n"


def main(text: str) -> str:
    """Answers a question. The model reads the stored log with the tools of the service."""
    context = Palimpsest().session("demo", SESSION, "anthropic_messages")
    tools = [*TOOLS, *context.tools()]
    messages: list[Any] = [{"role": "user", "content": text}]
    too_long = None
    while True:
        body = {"model": MODEL, "max_tokens": 1_024, "messages": messages, "tools": tools}
        view = context.sync(body, too_long=too_long)
        if not view.sendable:
            raise SystemExit(f"The conversation cannot be sent: {view.not_sendable_reason}")
        response = httpx2.post(f"{URL}/v1/messages", json=view.request, headers=HEADERS, timeout=600)
        is_too_long = response.status_code == 413 or "prompt is too long" in response.text
        if response.is_error and is_too_long and not too_long:
            # The next sync returns a shorter view.
            too_long = response.text
            continue
        too_long = None
        response.raise_for_status()
        messages += context.answer(response.json(), {"read_log": read_log})
        if response.json()["stop_reason"] != "tool_use":
            return "".join(block["text"] for block in response.json()["content"] if block["type"] == "text")


if __name__ == "__main__":
    print(main(" ".join(sys.argv[1:])))
