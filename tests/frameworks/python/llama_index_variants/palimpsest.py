"""The agent of Palimpsest, with the default policy and without a model for summaries."""

from llama_index.core.memory import Memory
from palimpsest.llama_index import PalimpsestAgent  # glue


def make(llm, tools, system, _window):
    agent = PalimpsestAgent("demo", llm=llm, tools=tools, system_prompt=system, streaming=False)  # glue
    memory = Memory.from_defaults(session_id="t", token_limit=10_000_000)  # glue
    return agent, memory


def search(pattern):
    return {"name": "SearchTranscript", "input": {"pattern": pattern}}
