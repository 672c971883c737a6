from __future__ import annotations

import ssl
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import openai
import pytest

from palimpsest import AsyncPalimpsest, Palimpsest
from world import Provider, Server

# The clients share it, because each one would read all certificates of the system again.
TLS = ssl.create_default_context()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("data"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    provider = Provider(tmp_path_factory.mktemp("provider"))
    yield provider
    provider.stop()


@pytest.fixture(scope="session", params=["http", "grpc"])
def scheme(request: pytest.FixtureRequest) -> str:
    """The scheme of the URL, which selects the transport."""
    return str(request.param)


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[Palimpsest]:
    with Palimpsest(server.url) as client:
        yield client


@pytest.fixture
async def async_client(server: Server) -> AsyncIterator[AsyncPalimpsest]:
    async with AsyncPalimpsest(server.url) as client:
        yield client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name of a session that no other test uses."""
    return f"{request.node.originalname}-{uuid.uuid4().hex[:6]}"


@pytest.fixture
def model(name: str) -> str:
    return f"fake-{name}"


@pytest.fixture(scope="session")
def claude(provider: Provider) -> Iterator[anthropic.Anthropic]:
    http: Any = anthropic.DefaultHttpxClient(verify=TLS)
    with anthropic.Anthropic(base_url=provider.url, api_key="key", max_retries=0, http_client=http) as client:
        yield client


@pytest.fixture
async def async_claude(provider: Provider) -> AsyncIterator[anthropic.AsyncAnthropic]:
    http: Any = anthropic.DefaultAsyncHttpxClient(verify=TLS)
    async with anthropic.AsyncAnthropic(
        base_url=provider.url, api_key="key", max_retries=0, http_client=http
    ) as client:
        yield client


@pytest.fixture(scope="session")
def gpt(provider: Provider) -> Iterator[openai.OpenAI]:
    http: Any = openai.DefaultHttpxClient(verify=TLS)
    url = f"{provider.url}/v1"
    with openai.OpenAI(base_url=url, api_key="key", max_retries=0, http_client=http) as client:
        yield client


@pytest.fixture
async def async_gpt(provider: Provider) -> AsyncIterator[openai.AsyncOpenAI]:
    http: Any = openai.DefaultAsyncHttpxClient(verify=TLS)
    url = f"{provider.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="key", max_retries=0, http_client=http) as client:
        yield client
