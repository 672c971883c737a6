"""Both middlewares of LangChain, each with the settings that it has alone."""

from langchain.agents import middleware  # glue


def make(window):
    return {}, lambda model: [
        middleware.SummarizationMiddleware(model, trigger=("fraction", 0.8), keep=("fraction", 0.3)),  # glue
        middleware.ContextEditingMiddleware(  # glue
            edits=[middleware.ClearToolUsesEdit(trigger=window * 100 // 128)]
        ),
    ]
