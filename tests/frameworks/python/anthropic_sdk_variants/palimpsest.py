"""A session of Palimpsest, with the default policy and without a model for summaries."""

from palimpsest import Palimpsest  # glue
from palimpsest.anthropic import ManagedMessages  # glue


def make(client):
    session = Palimpsest().session("demo", "t")  # glue
    model = ManagedMessages(client.messages, session, cache_breakpoints=True)  # glue
    return model.create, session.answer  # glue


def search(pattern):
    return {"name": "SearchTranscript", "input": {"pattern": pattern}}
