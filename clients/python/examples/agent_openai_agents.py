"""An agent of the OpenAI Agents SDK: python agent_openai_agents.py "Why did the build fail?"."""

import os
import sys

from agents import Agent, Runner, function_tool

from palimpsest.openai_agents import PalimpsestSession  # glue

MODEL = os.environ.get("MODEL", "gpt-5-mini")


@function_tool
def read_log() -> str:
    """Returns the build's log. The service stores it, and the model gets a preview and a reference."""
    return "".join(f"step {n}: compiled, and nothing was wrong\n" for n in range(5_000)) + "disk full\n"


def main(text: str) -> str:
    """Answers a question. The model reads the stored log with the tools of the service."""
    agent = Agent(name="builder", model=MODEL, tools=[read_log])
    session = PalimpsestSession("demo", os.environ.get("SESSION", "agent"))  # glue
    run = Runner.run_sync(session.with_tools(agent), text, session=session, run_config=session.run_config())  # glue
    return str(run.final_output)


if __name__ == "__main__":
    print(main(" ".join(sys.argv[1:])))
