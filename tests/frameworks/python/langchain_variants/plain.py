"""No management of the context."""


def make(_window):
    return {}, lambda _model: []
