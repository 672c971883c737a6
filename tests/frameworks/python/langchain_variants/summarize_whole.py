"""As `summarize`, but the model for summaries reads the whole old part. By default, it reads the last 4,000 tokens."""

from langchain.agents.middleware import SummarizationMiddleware  # glue


def make(_window):
    return {}, lambda model: [
        SummarizationMiddleware(  # glue
            model, trigger=("fraction", 0.8), keep=("fraction", 0.3), trim_tokens_to_summarize=None
        ),
    ]
