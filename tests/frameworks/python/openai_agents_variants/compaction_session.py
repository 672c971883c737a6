"""OpenAI compacts the stored conversation after a run. The settings are the defaults."""

from agents import RunConfig
from agents.memory import OpenAIResponsesCompactionSession  # glue


def make(store, client, model):
    session = OpenAIResponsesCompactionSession("t", store, client=client, model=model)  # glue
    return session, RunConfig(), []
