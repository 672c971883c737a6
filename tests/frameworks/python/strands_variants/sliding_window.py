"""The default: the last 40 messages. A rejected request shortens old results, or removes old messages."""


def make():
    return {}
