"""The last 50 items of the session, as in the documentation of `SessionSettings`."""

from agents import RunConfig, SessionSettings  # glue


def make(store, _client, _model):
    config = RunConfig(session_settings=SessionSettings(limit=50))  # glue
    return store, config, []
