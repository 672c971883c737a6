"""An agent of Google's Agent Development Kit: python agent_google_adk.py "Why did the build fail?"."""

import asyncio
import os
import sys

from google.adk.agents import Agent
from google.adk.apps import App
from google.adk.models.anthropic_llm import AnthropicLlm
from google.adk.runners import InMemoryRunner

from palimpsest.google_adk import PalimpsestPlugin  # glue

MODEL = os.environ.get("MODEL", "claude-sonnet-4-5")
SESSION = os.environ.get("SESSION", "agent")


def read_log() -> str:
    """Returns the build's log. The service stores it, and the model gets a preview and a reference."""
    return "".join(f"step {n}: compiled, and nothing was wrong\n" for n in range(5_000)) + "disk full\n"


async def main(text: str) -> str:
    """Answers a question. The model reads the stored log with the tools of the service."""
    agent = Agent(name="builder", model=AnthropicLlm(model=MODEL), tools=[read_log])
    app = App(
        name="build",
        root_agent=agent,
        plugins=[PalimpsestPlugin("demo")],  # glue
    )
    events = await InMemoryRunner(app=app).run_debug(text, session_id=SESSION, quiet=True)
    answer = events[-1].content
    return "".join(part.text or "" for part in answer.parts or []) if answer else ""


if __name__ == "__main__":
    print(asyncio.run(main(" ".join(sys.argv[1:]))))
