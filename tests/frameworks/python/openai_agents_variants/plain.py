"""A session of the SDK, and no management of the context."""


def make(store, _client, _model):
    return store, {}, []
