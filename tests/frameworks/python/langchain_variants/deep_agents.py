"""The middlewares of Deep Agents with their defaults. Removed messages and large results become files."""

from deepagents.backends import StateBackend  # glue
from deepagents.middleware.filesystem import FilesystemMiddleware  # glue
from deepagents.middleware.summarization import create_summarization_middleware  # glue


def make(_window):
    backend = StateBackend()  # glue
    return {}, lambda model: [
        FilesystemMiddleware(backend=backend),  # glue
        create_summarization_middleware(model, backend),  # glue
    ]


def search(pattern):
    return {"name": "grep", "input": {"pattern": pattern, "path": "/", "output_mode": "content"}}
