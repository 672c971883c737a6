"""An agent of LlamaIndex: python agent_llama_index.py "Why did the build fail?"."""

import asyncio
import os
import sys

from llama_index.core.memory import Memory
from llama_index.llms.anthropic import Anthropic

from palimpsest.llama_index import PalimpsestAgent  # glue

MODEL = os.environ.get("MODEL", "claude-sonnet-4-5")


def read_log() -> str:
    """Returns the build's log. The service stores it, and the model gets a preview and a reference."""
    return "".join(f"step {n}: compiled, and nothing was wrong\n" for n in range(5_000)) + "disk full\n"


async def main(text: str) -> str:
    """Answers a question. The model reads the stored log with the tools of the service."""
    agent = PalimpsestAgent("demo", llm=Anthropic(model=MODEL), tools=[read_log])  # glue
    memory = Memory.from_defaults(session_id=os.environ.get("SESSION", "agent"), token_limit=10_000_000)  # glue
    return str(await agent.run(text, memory=memory))


if __name__ == "__main__":
    print(asyncio.run(main(" ".join(sys.argv[1:]))))
