"""The clients of a case, the script of its provider, and the conversion of results to plain JSON."""

import json
import os
import ssl
import urllib.request
from dataclasses import dataclass
from functools import cached_property

import anthropic
import openai
from pydantic import BaseModel

# The clients share it, because each one would read all certificates of the system again.
TLS = ssl.create_default_context()
# A PNG with one pixel, and the beginning of a PDF.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PDF = "JVBERi0xLjQKJSVFT0YK"


@dataclass(frozen=True)
class Way:
    """A way to the provider: directly, or through the gateway."""

    name: str
    # The base URL of clients.
    url: str
    # The address of the provider itself.
    provider: str


def ways():
    """Returns both ways, from the environment."""
    direct, behind = os.environ["DIRECT_PROVIDER"], os.environ["GATEWAY_PROVIDER"]
    return [Way("direct", direct, direct), Way("gateway", os.environ["GATEWAY"], behind)]


class Run:
    """One run of a case on one way."""

    def __init__(self, case, way):
        self.case = case
        self.way = way
        # The models of a case are its own, so that its script answers no other case.
        self.claude = f"claude-fake-{case}"
        self.gpt = f"gpt-fake-{case}"
        # The header with which the gateway describes each response.
        self.bodies = []
        self._options = {"api_key": "key", "default_headers": {"x-case": case}}
        self._hooks = {"response": [self._see]}
        self._async_hooks = {"response": [self._see_async]}

    @cached_property
    def anthropic(self):
        http = anthropic.DefaultHttpxClient(event_hooks=self._hooks, verify=TLS)
        return anthropic.Anthropic(base_url=self.way.url, http_client=http, **self._options)

    @cached_property
    def async_anthropic(self):
        http = anthropic.DefaultAsyncHttpxClient(event_hooks=self._async_hooks, verify=TLS)
        return anthropic.AsyncAnthropic(base_url=self.way.url, http_client=http, **self._options)

    @cached_property
    def openai(self):
        http = openai.DefaultHttpx2Client(event_hooks=self._hooks, verify=TLS)
        return openai.OpenAI(base_url=f"{self.way.url}/v1", http_client=http, **self._options)

    @cached_property
    def async_openai(self):
        http = openai.DefaultAsyncHttpx2Client(event_hooks=self._async_hooks, verify=TLS)
        return openai.AsyncOpenAI(base_url=f"{self.way.url}/v1", http_client=http, **self._options)

    def _see(self, response):
        self.bodies.append(response.headers.get("x-palimpsest-body"))

    async def _see_async(self, response):
        self._see(response)

    def script(self, model, *turns, **script):
        """Scripts the next answers of a model."""
        body = json.dumps({"match": {"model": model}, "turns": turns, **script}).encode()
        request = urllib.request.Request(f"{self.way.provider}/_control/script", body, method="POST")
        urllib.request.urlopen(request).close()


def raised(call):
    """Returns the error that a call raises."""
    try:
        call()
    except Exception as error:
        return described(error)
    raise AssertionError("the call succeeded")


async def raised_async(call):
    """Returns the error that an awaitable raises."""
    try:
        await call
    except Exception as error:
        return described(error)
    raise AssertionError("the call succeeded")


def described(error):
    """Returns the class of an error and all that a program can read of it."""
    response = getattr(error, "response", None)
    return {
        "classes": [kind.__name__ for kind in type(error).__mro__],
        "message": str(error),
        "body": getattr(error, "body", None),
        "type": getattr(error, "type", None),
        "code": getattr(error, "code", None),
        "param": getattr(error, "param", None),
        "request_id": getattr(error, "request_id", None),
        "status": response.status_code if response is not None else None,
        "headers": dict(response.headers) if response is not None else None,
    }


def plain(value):
    """Converts a result to JSON, with all fields of the objects of an SDK."""
    if isinstance(value, BaseModel):
        value = {"class": type(value).__name__.split("[")[0], **plain_fields(value)}
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, bytes):
        return value.decode()
    return value


def plain_fields(value):
    """Returns the fields of an object of an SDK."""
    fields = value.model_dump(mode="json", warnings=False, serialize_as_any=True)
    request_id = getattr(value, "_request_id", None)
    return {**fields, "_request_id": request_id} if request_id is not None else fields


def lines_of(command):
    """Returns the output of the command that the scripted agent runs: `seq -f FORMAT 1 LAST`."""
    line, last = command.split("'")[1], int(command.rsplit(" ", 1)[1])
    return "".join(line.replace("%08.0f", f"{number:08}") + "\n" for number in range(1, last + 1))
