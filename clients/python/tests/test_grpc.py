"""The transport over gRPC, and its JSON beside that of the HTTP API."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import grpc
import grpc.aio
import pytest
from test_readme import run

from palimpsest import ApiError, AsyncPalimpsest, InvalidArgumentError, Palimpsest, Session, UnavailableError
from palimpsest._contract import details_json
from world import ANTHROPIC_TOOL, LOG, Server

HERE = Path(__file__).parent.parent
PROTO = HERE.parent.parent / "proto"
CONTRACT = HERE / "src/palimpsest/contract.binpb"
BODY: dict[str, Any] = {"model": "claude-fake", "messages": [{"role": "user", "content": "hello"}]}


def conversation(turns: int) -> list[Any]:
    """Returns an array with a tool result that the service stores."""
    call = {"type": "tool_use", "id": "c1", "name": "read_log", "input": {"path": "a.log"}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": LOG}
    messages: list[Any] = [{"role": "user", "content": "Why did `src/main.rs` fail?"}]
    messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    for number in range(turns):
        messages += [{"role": "assistant", "content": f"answer {number} " + "word " * 2_000}]
        messages += [{"role": "user", "content": f"question {number}"}]
    return messages


def timeless(reply: Any) -> Any:
    """Returns a reply without the time since the last response."""
    reply.get("cache_ledger", {}).pop("idle", None)
    return reply


@pytest.fixture
def sessions(server: Server, name: str) -> Iterator[tuple[Session, Session]]:
    """One session over HTTP and over gRPC."""
    with Palimpsest(server.url) as http, Palimpsest(server.at("grpc")) as grpc_client:
        yield http.session("demo", name), grpc_client.session("demo", name)


def test_replies_are_those_of_the_http_api(sessions: tuple[Session, Session]) -> None:
    http, rpc = sessions

    def check_change(name: str, fields: Any) -> None:
        # The repeat of a change returns the outcome of the first call.
        request = rpc._path.create(fields) if name == "CreateSession" else rpc._path.change(name, fields)
        assert timeless(rpc._send(request)) == timeless(http._send(request))

    rules = {"other": {"never_persist": True}, "read_log": {"fixed_chars": 10_000}}
    overrides = {"tool_results": {"rules": rules}, "autocompact": {"timeout": "90.5s", "critical_at_percent": 92.5}}
    check_change("CreateSession", {"policy_overrides": overrides, "attributes": {"team": "red"}})
    body = {"model": "claude-fake", "system": "Be brief.", "messages": conversation(6), "tools": [ANTHROPIC_TOOL]}
    etag = rpc.sync(body).etag
    # The session memory is written in the background. Without it, no event follows the last call.
    memory = rpc.watch(kinds=["memory_update_started", "memory_updated"])
    for kind in ("memory_update_started", "memory_updated"):
        while kind not in next(memory):
            continue
    memory.close()
    assert rpc.memory() == http.memory()
    changed = {"title": "A title", "policy_overrides": {**overrides, "session_memory": {"enabled": False}}}
    check_change("UpdateSession", {"session": changed, "update_mask": "title,policy_overrides"})
    parameters: list[Any] = [{}, {"known_etag": etag}, {"target": {"model": "m"}}, {"cache_breakpoints": {}}]
    for options in parameters:
        replies = [it.sync(body, palimpsest={**options, "dry_run": True}).reply for it in sessions]
        assert timeless(replies[0]) == timeless(replies[1])
    read = {"type": "tool_use", "id": "c2", "name": "ReadToolResult", "input": {"tool_use_id": "c1", "tail_lines": 1}}
    assert rpc.run_tool(read) == http.run_tool(read)
    metadata = {"create_time": "2026-01-31T12:00:00.250Z", "attributes": {"a": "b"}, "usage": {"input_tokens": 7}}
    payload = {"format": "anthropic_messages", "json": {"role": "user", "content": "One more."}}
    check_change("AppendMessages", {"messages": [{"payload": payload, "metadata": metadata}]})
    revision = rpc.get()["revision"]
    check_change("Compact", {"overrides": {"instructions": "Keep names."}})
    check_change("RestoreContext", {"to_revision": revision})
    check_change("RewindSession", {"before_message_id": list(http.messages())[-1]["id"]})

    assert rpc.get() == http.get()
    assert rpc.tools("openai_chat") == http.tools("openai_chat")
    for format_ in ("anthropic_messages", "openai_responses"):
        assert list(rpc.messages(format_)) == list(http.messages(format_))
    hits = list(rpc.search("disk full"))
    assert hits == list(http.search("disk full"))
    assert hits
    events = list(rpc.events())
    assert events == list(http.events())
    assert len({kind for event in events for kind in event}) > 10
    watches = rpc.watch(), http.watch()
    watched = [[next(watch) for _ in events] for watch in watches]
    assert watched[0] == watched[1]
    for watch in watches:
        watch.close()


def test_sessions_are_listed_with_a_filter(server: Server, name: str) -> None:
    with Palimpsest(server.url) as http, Palimpsest(server.at("grpc")) as rpc:
        for title in ("first", "second"):
            rpc.session(name, title).create(title=title)
        query = {"filter.text": "first", "order": "updated_desc", "page_size": 1}
        listed = list(rpc.sessions(name, **query))
        assert [it["title"] for it in listed] == ["first"]
        assert listed == list(http.sessions(name, **query))


@pytest.mark.parametrize(
    "call",
    [
        lambda session: session.get(),
        lambda session: session.restore(7),
        lambda session: session.append([{"payload": {"format": "openai_chat", "json": {"role": "nobody"}}}]),
    ],
)
def test_errors_are_those_of_the_http_api(sessions: tuple[Session, Session], call: Callable[[Session], Any]) -> None:
    errors: list[ApiError] = []
    for session in sessions:
        with pytest.raises(ApiError) as caught:
            call(session)
        errors.append(caught.value)
    http, rpc = errors
    assert (type(rpc), str(rpc), rpc.details) == (type(http), str(http), http.details)
    assert rpc.reason


def test_unknown_details_are_omitted() -> None:
    status = b"\x08\x05\x1a\x1d\n\x1btype.googleapis.com/a.Thing"
    known = b"\x1a\x36\n\x28type.googleapis.com/google.rpc.ErrorInfo\x12\x0a\n\x08A_REASON"
    assert details_json(status + known) == [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "A_REASON"}]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"nope": 1}, r"`palimpsest\.nope` is not a field"),
        ({"target": {"nope": 1}}, r"`palimpsest\.target\.nope` is not a field"),
        ({"compaction_mode": "nope"}, r"`palimpsest\.compaction_mode` has no valid value: 'nope' is not the name"),
        ({"dry_run": "yes"}, r"`palimpsest\.dry_run` has no valid value"),
        ({"target": "m"}, r"`palimpsest\.target` has no valid value"),
    ],
)
def test_invalid_fields_are_named(sessions: tuple[Session, Session], fields: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        sessions[1].sync(BODY, palimpsest=fields)


class Refusal(grpc.RpcError):
    """The error of a connection that is refused."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "refused"

    def trailing_metadata(self) -> Any:
        return ()


class FailedOpening(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Lets the first stream fail, and records the deadlines."""

    def __init__(self) -> None:
        self.timeouts: list[float] = []

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        self.timeouts.append(client_call_details.timeout)
        return continuation(client_call_details, request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        self.timeouts.append(client_call_details.timeout)
        if len(self.timeouts) == 2:
            raise Refusal
        return continuation(client_call_details, request)


def test_the_stream_of_a_view_is_retried_until_the_deadline_of_the_sync(server: Server, name: str) -> None:
    interceptor = FailedOpening()
    with grpc.insecure_channel(server.address) as plain:
        client = Palimpsest(channel=grpc.intercept_channel(plain, interceptor))
        client.session("demo", name).create(policy_overrides={"limits": {"max_reply_bytes": 65_536}})
        interceptor.timeouts.clear()
        view = client.session("demo", name).sync(model="claude-fake", messages=conversation(12))
    assert view.reply["view_omitted"]
    sync, _, retry = interceptor.timeouts
    # The retry begins at least 0.1 seconds later, and has the deadline of the sync.
    assert retry <= sync - 0.1


async def test_an_async_client_takes_a_channel(server: Server, name: str) -> None:
    async with AsyncPalimpsest(channel=grpc.aio.insecure_channel(server.address)) as client:
        context = client.session("demo", name)
        await context.create(policy_overrides={"limits": {"max_reply_bytes": 65_536}})
        view = await context.sync(model="claude-fake", messages=conversation(12))
        assert view.reply["view_omitted"]
        assert "question 11" in str(view.messages[-1])
        listed = [it async for it in context.messages(page_size=10)]
        assert len(listed) == 27
        watch = context.watch(after_revision=0, kinds=["session_created"])
        assert "session_created" in await anext(watch)
        await watch.aclose()


def test_an_async_client_can_be_created_before_its_event_loop(server: Server, name: str) -> None:
    client = AsyncPalimpsest(server.at("grpc"))

    async def run() -> str:
        async with client:
            view = await client.session("demo", name).sync(BODY)
            return view.outcome

    assert asyncio.run(run()) == "new"


def test_tls(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    server = Server(tmp_path / "data", "--set", f"tls.cert_file={certificate}", "--set", f"tls.key_file={key}")
    url = f"grpcs://localhost:{server.address.rsplit(':', 1)[1]}"
    program = f"from palimpsest import Palimpsest\nprint(Palimpsest({url!r}).session('demo', 'a').sync({BODY}).outcome)"
    try:
        with Palimpsest(url, max_retries=0) as client, pytest.raises(UnavailableError, match="certificate"):
            client.session("demo", "a").get()
        credentials = grpc.ssl_channel_credentials(certificate.read_bytes())
        with Palimpsest(channel=grpc.secure_channel(url.removeprefix("grpcs://"), credentials)) as client:
            assert list(client.sessions("demo")) == []
        # The library reads the variable once.
        env = {**os.environ, "PYTHONPATH": str(HERE / "src"), "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(certificate)}
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
        assert done.stdout == "new\n", done.stderr
    finally:
        server.stop()


def test_the_package_works_without_the_extra() -> None:
    program = """
import sys
sys.modules["grpc"] = sys.modules["google.protobuf"] = None
from palimpsest import AsyncPalimpsest, Palimpsest
for client in (Palimpsest, AsyncPalimpsest):
    client("http://127.0.0.1:9")
    try:
        client("grpc://127.0.0.1:9")
    except ImportError as error:
        print(error)
"""
    env = {**os.environ, "PYTHONPATH": str(HERE / "src")}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    text = 'gRPC needs other packages: pip install "palimpsest[grpc]"\n'
    assert (done.stdout, done.stderr) == (text * 2, "")


def test_the_contract_is_that_of_the_proto_files(tmp_path: Path) -> None:
    compiled = tmp_path / "contract.binpb"
    # The package googleapis-common-protos contains the details of errors.
    google = sysconfig.get_path("purelib")
    options = [f"-I{PROTO}", f"-I{google}", "--include_imports", f"--descriptor_set_out={compiled}"]
    names = [f"palimpsest/context/v1/{name}.proto" for name in ("context_service", "session_service", "errors")]
    names += ["google/rpc/status.proto", "google/rpc/error_details.proto"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *options, *names], check=True)
    if os.environ.get("UPDATE_EXPECT"):
        CONTRACT.write_bytes(compiled.read_bytes())
    assert compiled.read_bytes() == CONTRACT.read_bytes(), "Run the test with UPDATE_EXPECT=1, and commit the file."


def test_the_code_of_the_readme_runs(server: Server) -> None:
    section = (HERE / "README.md").read_text().split("\n## gRPC\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^ +```(\w+)\n(.*?)^ +```$", section, re.DOTALL | re.MULTILINE)
    (_, program), (_, output) = blocks
    program = dedent(program)
    assert "127.0.0.1:50051" in program
    assert run("-c", program.replace("127.0.0.1:50051", server.address)) == dedent(output)
