"""No management of the context."""


def make(_window):
    return {}
