"""The client of the SDK, and no management of the context."""

from functools import partial


def make(client):
    # The provider sets the cache breakpoint at the end of each request.
    create = partial(client.messages.create, cache_control={"type": "ephemeral"})
    return create, answer


def answer(response, functions):
    """Returns the response, and the results of its calls, as messages."""
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": functions[block.name](**block.input)}
        for block in response.content
        if block.type == "tool_use"
    ]
    messages = [{"role": "assistant", "content": [block.model_dump() for block in response.content]}]
    return [*messages, {"role": "user", "content": results}] if results else messages
