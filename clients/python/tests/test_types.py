"""Programs with the types of the SDKs. The type checkers read this file."""

from __future__ import annotations

from anthropic.types import MessageParam
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam
from openai.types.responses import Response, ResponseInputItemParam

from palimpsest import AsyncSession, Budget, Palimpsest, Session, Tokens, View, ViewWarning


def append_to_typed_lists(session: Session, completion: ChatCompletion, response: Response) -> None:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Why?"}]
    messages += session.answer(completion, {})
    items: list[ResponseInputItemParam] = [{"role": "user", "content": "Why?"}]
    items += session.answer(response, {})


async def append_to_a_typed_list(session: AsyncSession, completion: ChatCompletion) -> None:
    messages: list[MessageParam] = [{"role": "user", "content": "Why?"}]
    messages += await session.answer(completion, {})


def read_fields(view: View) -> tuple[str, int, int, list[str]]:
    state = view.budget["state"]
    return state, view.budget["free_tokens"], view.tokens["total_tokens"], [it["code"] for it in view.warnings]


def test_the_service_returns_the_required_fields(client: Palimpsest, name: str) -> None:
    messages = [{"role": "user", "content": "Why?"}]
    view = client.session("demo", name).sync(model="claude-fake", messages=messages)
    assert view.budget.keys() == Budget.__required_keys__
    # The estimator is set only with a count of estimates.
    assert view.tokens.keys() >= Tokens.__required_keys__
    assert all(it.keys() >= ViewWarning.__required_keys__ for it in view.warnings)
    assert read_fields(view)[0] == "normal"
