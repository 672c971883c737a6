"""A summary of the messages above 75 % of the window. The settings are the defaults."""

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.memory import ChatSummaryMemoryBuffer  # glue


def make(llm, tools, system, _window):
    agent = FunctionAgent(llm=llm, tools=tools, system_prompt=system, streaming=False)
    memory = ChatSummaryMemoryBuffer.from_defaults(llm=llm)  # glue
    return agent, memory
