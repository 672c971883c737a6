"""Plays a task with the SDK of Anthropic and a loop of its own, without a framework."""

from __future__ import annotations

from typing import Any

import anthropic
from play import KEY, MAX_OUTPUT, Play, conversation


def run(state: Play) -> None:
    """Plays the task."""
    with anthropic.Anthropic(base_url=state.provider.url, api_key=KEY, max_retries=0) as client:
        create, answer = state.variant.make(client)
        messages: list[Any] = []
        functions = {name: _function(state, name) for name in state.task.tools}
        body: Any = {
            "model": state.model,
            "max_tokens": MAX_OUTPUT,
            "system": state.task.system,
            "tools": [_tool(name, arguments) for name, arguments in state.task.tools.items()],
        }

        def ask(text: str) -> None:
            messages.append({"role": "user", "content": text})
            while True:
                response = create(messages=messages, **body)
                usage = response.usage
                cached = usage.cache_read_input_tokens + usage.cache_creation_input_tokens
                state.used(usage.input_tokens + cached)
                messages.extend(answer(response, functions))
                if response.stop_reason != "tool_use":
                    return

        conversation(state, ask)
    state.kept({_text(block["content"]) for it in messages for block in it["content"] if "tool_use_id" in block})


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(it["text"] for it in content)


def _function(state: Play, name: str) -> Any:
    return lambda **arguments: state.toolbox.run(name, arguments)


def _tool(name: str, arguments: dict[str, str]) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": text} for key, text in arguments.items()}
    schema = {"type": "object", "properties": properties, "required": list(arguments)}
    return {"name": name, "description": f"Runs {name}.", "input_schema": schema}
