"""The first message and the last ten. The documentation keeps five messages, which separates calls from results."""

from pydantic_ai.capabilities import ProcessHistory  # glue


def keep_recent_messages(messages):  # glue
    return messages if len(messages) <= 11 else [messages[0], *messages[-10:]]  # glue


def make(_model):
    return [ProcessHistory(keep_recent_messages)]  # glue
