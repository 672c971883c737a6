"""A pytest plugin for the tests of LangChain: each agent of these tests has our middleware too.

The middleware is the innermost one, next to the model. The policy of the server must set `snip.tag_turns` to false,
because the models of the tests repeat their input.
"""

from __future__ import annotations

import copy
import os
import uuid
from typing import Any

import langchain.agents
import pytest
from langchain.agents import factory
from langchain_core.language_models import BaseChatModel

from palimpsest import Palimpsest
from palimpsest.langchain import PalimpsestMiddleware

CLIENT = Palimpsest(os.environ["PALIMPSEST_URL"])
# The tests share it, so that the tools of the service are requested once.
MIDDLEWARE = PalimpsestMiddleware(f"suite-{uuid.uuid4().hex[:8]}", client=CLIENT)
create_agent = factory.create_agent


def with_middleware(model: Any, *arguments: Any, middleware: Any = (), **options: Any) -> Any:
    """Creates an agent whose conversations are in a session of the service."""
    ours = copy.copy(MIDDLEWARE)
    ours._session = uuid.uuid4().hex
    if getattr(type(model), "bind_tools", None) is BaseChatModel.bind_tools:
        # A model of the tests that takes no tools.
        ours._read_back = False
    return create_agent(model, *arguments, middleware=[*middleware, ours], **options)


def pytest_configure(config: pytest.Config) -> None:
    """Replaces the function before the tests import it."""
    del config
    langchain.agents.create_agent = factory.create_agent = with_middleware
