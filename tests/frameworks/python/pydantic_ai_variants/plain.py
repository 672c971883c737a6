"""No management of the context."""


def make(_model):
    return []
