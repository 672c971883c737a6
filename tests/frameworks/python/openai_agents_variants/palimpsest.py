"""The context of Palimpsest, with the default policy and without a model for summaries."""

from palimpsest.openai_agents import PalimpsestContext  # glue


def make(store, _client, _model):
    context = PalimpsestContext("demo", "t")  # glue
    return store, context.run_config(), context.tools()  # glue


def search(pattern):
    return {"name": "SearchTranscript", "input": {"pattern": pattern}}
