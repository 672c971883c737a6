"""An agent of LangChain: python agent_langchain.py "Why did the build fail?"."""

import os
import sys

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage

from palimpsest.langchain import PalimpsestMiddleware  # glue

MODEL = os.environ.get("MODEL", "claude-sonnet-4-5")


def read_log() -> str:
    """Returns the build's log. The service stores it, and the model gets a preview and a reference."""
    return "".join(f"step {n}: compiled, and nothing was wrong\n" for n in range(5_000)) + "disk full\n"


def main(text: str) -> str:
    """Answers a question. The model reads the stored log with the tools of the service."""
    agent = create_agent(
        ChatAnthropic(model_name=MODEL, timeout=None, stop=None),
        tools=[read_log],
        middleware=[PalimpsestMiddleware("demo", session=os.environ.get("SESSION", "agent"))],  # glue
    )
    return str(agent.invoke({"messages": [HumanMessage(text)]})["messages"][-1].text)


if __name__ == "__main__":
    print(main(" ".join(sys.argv[1:])))
