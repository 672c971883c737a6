"""The input filter and the tools of Palimpsest, with the default policy and without a model for summaries."""

from palimpsest import Palimpsest  # glue
from palimpsest.openai_agents import input_filter, tools  # glue


def make(store, _client, _model):
    context = Palimpsest().session("demo", "t")  # glue
    config = {"call_model_input_filter": input_filter(context)}  # glue
    own_tools = tools(context)  # glue
    return store, config, own_tools


def search(pattern):
    return {"name": "SearchTranscript", "input": {"pattern": pattern}}
