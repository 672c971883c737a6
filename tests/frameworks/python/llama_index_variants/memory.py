"""A memory with the window as its limit. By default, 70 % of the limit are for messages."""

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.memory import Memory  # glue


def make(llm, tools, system, window):
    agent = FunctionAgent(llm=llm, tools=tools, system_prompt=system, streaming=False)
    memory = Memory.from_defaults(session_id="t", token_limit=window)  # glue
    return agent, memory
