"""The last user turn, above 80 % of the window, as in the documentation of history processors."""

from pydantic_ai import ModelMessage, RunContext  # glue
from pydantic_ai.capabilities import ProcessHistory  # glue


def compact_when_window_fills(ctx: RunContext, messages: list[ModelMessage]) -> list[ModelMessage]:  # glue
    used = ctx.context_window_used  # glue
    if used is None or used <= 0.8:  # glue
        return messages  # glue
    for index in range(len(messages) - 1, -1, -1):  # glue
        kinds = [part.part_kind for part in messages[index].parts]  # glue
        if "user-prompt" in kinds and not {"tool-return", "retry-prompt"} & {*kinds}:  # glue
            return messages[index:]  # glue
    return messages  # glue


def make(_model):
    return [ProcessHistory(compact_when_window_fills)]  # glue
