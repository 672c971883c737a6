"""Anthropic clears old tool results in its servers. Parameters of the chat model request it."""


def make(window):
    trigger = {"type": "input_tokens", "value": window * 100 // 128}
    edit = {"type": "clear_tool_uses_20250919", "trigger": trigger}  # glue
    options = {"betas": ["context-management-2025-06-27"], "context_management": {"edits": [edit]}}  # glue
    return options, lambda _model: []
