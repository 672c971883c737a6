"""Old messages are summarized by a model. The fractions are those of LangChain's documentation."""

from langchain.agents.middleware import SummarizationMiddleware  # glue


def make(_window):
    return {}, lambda model: [
        SummarizationMiddleware(model, trigger=("fraction", 0.8), keep=("fraction", 0.3)),  # glue
    ]
