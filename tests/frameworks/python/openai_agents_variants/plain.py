"""A session of the SDK, and no management of the context."""

from agents import RunConfig


def make(store, _client, _model):
    return store, RunConfig(), []
