"""An agent of Strands: python agent_strands.py "Why did the build fail?"."""

import os
import sys

from strands import Agent, tool
from strands.models.anthropic import AnthropicModel

from palimpsest.strands import PalimpsestConversationManager  # glue

MODEL = os.environ.get("MODEL", "claude-sonnet-4-5")


@tool
def read_log() -> str:
    """Returns the build's log. The service stores it, and the model gets a preview and a reference."""
    return "".join(f"step {n}: compiled, and nothing was wrong\n" for n in range(5_000)) + "disk full\n"


def main(text: str) -> str:
    """Answers a question. The model reads the stored log with the tools of the service."""
    agent = Agent(
        AnthropicModel(model_id=MODEL, max_tokens=1_024),
        tools=[read_log],
        conversation_manager=PalimpsestConversationManager("demo", os.environ.get("SESSION", "agent")),  # glue
        callback_handler=None,
    )
    return str(agent(text)).strip()


if __name__ == "__main__":
    print(main(" ".join(sys.argv[1:])))
