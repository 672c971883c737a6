"""An agent of Pydantic AI: python agent_pydantic_ai.py "Why did the build fail?"."""

import os
import sys

from pydantic_ai import Agent

from palimpsest.pydantic_ai import PalimpsestCapability  # glue

MODEL = os.environ.get("MODEL", "claude-sonnet-4-5")


def read_log() -> str:
    """Returns the build's log. The service stores it, and the model gets a preview and a reference."""
    return "".join(f"step {n}: compiled, and nothing was wrong\n" for n in range(5_000)) + "disk full\n"


def main(text: str) -> str:
    """Answers a question. The model reads the stored log with the tools of the service."""
    agent = Agent(
        f"anthropic:{MODEL}",
        tools=[read_log],
        capabilities=[PalimpsestCapability("demo", session=os.environ.get("SESSION", "agent"))],  # glue
    )
    return agent.run_sync(text).output


if __name__ == "__main__":
    print(main(" ".join(sys.argv[1:])))
