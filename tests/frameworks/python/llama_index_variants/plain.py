"""A memory without a limit."""

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.memory import Memory  # glue


def make(llm, tools, system, _window):
    agent = FunctionAgent(llm=llm, tools=tools, system_prompt=system, streaming=False)
    memory = Memory.from_defaults(session_id="t", token_limit=10_000_000)  # glue
    return agent, memory
