"""Old tool results are cleared. The trigger is the default, 100,000 of 128,000 tokens, in proportion."""

from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware  # glue


def make(window):
    return {}, lambda _model: [
        ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=window * 100 // 128)]),  # glue
    ]
