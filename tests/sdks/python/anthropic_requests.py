"""Options of requests, errors, retries, raw responses and other endpoints with Anthropic's SDK."""

import anthropic

from anthropic_messages import ANSWER, WEATHER, request, user
from case import case
from world import PNG, Run, raised


@case()
def count_tokens(run: Run):
    count = run.anthropic.messages.count_tokens
    ask = {"model": run.claude, "messages": [user(f"{run.case}: count")], "system": "Be brief.", "tools": [WEATHER]}
    return [count(**ask), count(**ask, thinking={"type": "enabled", "budget_tokens": 2_000})]


@case()
def betas_and_extras(run: Run):
    clear = {"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 30_000}}
    return run.anthropic.beta.messages.create(
        **request(run),
        betas=["context-management-2025-06-27", "interleaved-thinking-2025-05-14"],
        context_management={"edits": [clear]},
        extra_headers={"x-extra": "one"},
        extra_query={"beta": "true", "extra": ["two", "three"]},
        extra_body={"inference_geo": "eu"},
    )


@case()
def mid_conversation_system(run: Run):
    messages = [user(f"{run.case}: hi"), {"role": "system", "content": "Be brief."}]
    beta = ["mid-conversation-system-2026-04-07"]
    return run.anthropic.beta.messages.create(**request(run, messages=messages), betas=beta)


@case()
def codings(run: Run):
    results = []
    for coding in ("gzip", "deflate", "br", "zstd"):
        turn = ANSWER | {"pace": {"coding": coding}}
        run.script(run.claude, turn, turn)
        ask = request(run, messages=[user(f"{run.case}: {coding}")])
        whole = run.anthropic.messages.with_raw_response.create(**ask)
        with run.anthropic.messages.stream(**ask) as stream:
            streamed = stream.get_final_message()
            headers = dict(stream.response.headers)
        results.append([whole.parse(), dict(whole.headers), streamed, headers])
    return results


@case()
def raw_responses(run: Run):
    messages = run.anthropic.messages
    raw = messages.with_raw_response.create(**request(run))
    results = [raw.parse(), raw.status_code, dict(raw.headers), raw.request_id, raw.retries_taken, raw.text()]
    with messages.with_streaming_response.create(**request(run)) as response:
        results += [dict(response.headers), response.request_id, b"".join(response.iter_bytes())]
    with messages.with_streaming_response.create(**request(run), stream=True) as response:
        results += [dict(response.headers), list(response.iter_lines())]
    stream = messages.with_raw_response.create(**request(run), stream=True)
    return results + [dict(stream.headers), list(stream.parse())]


def retried(status, retry_after):
    return {"fault": {"status": {"status": status, "retry_after": retry_after}}}


@case()
def retries(run: Run):
    waits = [{"fraction": 10}, {"millis": 10}]
    results = []
    for status in (408, 409, 429, 500, 503, 529):
        run.script(run.claude, *(retried(status, wait) for wait in waits), ANSWER)
        raw = run.anthropic.messages.with_raw_response.create(**request(run))
        results.append([status, raw.retries_taken, raw.parse()])
    run.script(run.claude, retried(529, waits[0]), ANSWER)
    with run.anthropic.messages.stream(**request(run)) as stream:
        results.append(stream.get_final_message())
    return results


@case()
def retries_end(run: Run):
    run.script(run.claude, *[retried(429, {"millis": 10})] * 2, ANSWER)
    client = run.anthropic.with_options(max_retries=1)
    return [raised(lambda: client.messages.create(**request(run))), client.messages.create(**request(run))]


@case()
def errors(run: Run):
    client = run.anthropic.with_options(max_retries=0)
    results = []
    for status in (400, 401, 403, 404, 409, 413, 422, 429, 500, 503, 504, 529):
        run.script(run.claude, *[retried(status, {"seconds": 30})] * 2)
        results.append(raised(lambda: client.messages.create(**request(run))))
        results.append(raised(lambda: client.messages.create(**request(run), stream=True)))
    run.script(run.claude, retried(429, {"limits": 60}))
    limited = raised(lambda: client.messages.create(**request(run)))
    # The time of the end depends on the clock.
    del limited["headers"]["anthropic-ratelimit-requests-reset"]
    invalid = [
        {"max_tokens": 0},
        {"model": "no-such-model"},
        {"messages": [user([{"type": "tool_result", "tool_use_id": "unknown", "content": "x"}])]},
        {"extra_body": {"unknown": 1}},
        {"extra_headers": {"anthropic-beta": "unknown"}},
    ]
    results += [raised(lambda: client.messages.create(**(request(run) | change))) for change in invalid]
    other = client.with_options(api_key="invalid")
    return results + [limited, raised(lambda: other.messages.create(**request(run)))]


@case()
def html_error(run: Run):
    run.script(run.claude, {"fault": {"html": 502}})
    client = run.anthropic.with_options(max_retries=0)
    return raised(lambda: client.messages.create(**request(run)))


@case()
def error_in_stream(run: Run):
    run.script(run.claude, ANSWER | {"fault": {"error_after_event": 4}})
    events = []

    def read():
        with run.anthropic.messages.stream(**request(run)) as stream:
            events.extend(stream)

    return [raised(read), events]


@case()
def broken_streams(run: Run):
    faults = [
        {"fault": {"cut_after_event": 4}},
        {"fault": {"reset_after_event": 4}},
        # In one frame, because the SDK stops reading at the broken event.
        {"fault": {"malformed_after_event": 4}, "pace": {"split": "together"}},
    ]
    results = []
    for fault in faults:
        run.script(run.claude, ANSWER | fault)
        events = []

        def read():
            with run.anthropic.messages.stream(**request(run)) as stream:
                events.extend(stream)

        results.append([raised(read), events])
    return results


@case()
def reset_before_response(run: Run):
    run.script(run.claude, {"fault": "reset"}, {"fault": "reset"}, ANSWER)
    client = run.anthropic.with_options(max_retries=0)
    error = raised(lambda: client.messages.create(**request(run)))
    raw = run.anthropic.with_options(max_retries=1).messages.with_raw_response.create(**request(run))
    return [error, raw.retries_taken, raw.parse()]


def endless():
    return {"text": "word " * 4_000, "pace": {"gap_ms": 1_000, "delta_bytes": 20}}


@case(aborts=2)
def aborts(run: Run):
    run.script(run.claude, endless(), endless())
    with run.anthropic.messages.stream(**request(run, max_tokens=8_000)) as stream:
        first = next(iter(stream))
    stream = run.anthropic.messages.create(**request(run, max_tokens=8_000), stream=True)
    second = next(stream)
    stream.close()
    return [first, second]


@case(body=None)
def batches(run: Run):
    batches = run.anthropic.messages.batches
    good, bad = request(run, max_tokens=100), request(run, max_tokens=0)
    created = batches.create(
        requests=[{"custom_id": "good", "params": good}, {"custom_id": "bad", "params": bad}]
    )
    other = batches.create(requests=[{"custom_id": "other", "params": good}])
    states = [created, batches.retrieve(created.id), batches.retrieve(created.id)]
    # The address of the results is that of the provider.
    results = list(batches.results(created.id))
    listed = list(batches.list(limit=1))
    unknown = raised(lambda: batches.retrieve("msgbatch_unknown"))
    return [states, results, listed, batches.cancel(other.id), batches.delete(created.id), unknown]


@case(body=None)
def files(run: Run):
    files = run.anthropic.files
    text = files.upload(file=("notes.txt", "Grüße\r\n--no boundary\r\n".encode(), "text/plain"))
    files.upload(file=("data.bin", bytes(range(128)) * 2_000))
    content = files.download(text.id)
    listed = list(files.list(limit=1))
    results = [text, files.retrieve_metadata(text.id), content.read(), listed, files.delete(text.id)]
    return results + [raised(lambda: files.retrieve_metadata(text.id))]


@case()
def file_in_message(run: Run):
    file = run.anthropic.files.upload(file=("notes.txt", b"It rains.", "text/plain"))
    document = {"type": "document", "source": {"type": "file", "file_id": file.id}}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    content = [document, image, {"type": "text", "text": f"{run.case}: read it"}]
    betas = ["files-api-2025-04-14"]
    return [file, run.anthropic.beta.messages.create(**request(run, messages=[user(content)]), betas=betas)]


@case(body=None)
def models(run: Run):
    models = run.anthropic.models
    return [list(models.list(limit=1)), models.retrieve("claude-fake"), raised(lambda: models.retrieve("none"))]


@case()
def middleware_and_timeout(run: Run):
    client = anthropic.Anthropic(
        api_key="key", base_url=run.way.url, timeout=77.0, default_headers={"x-case": run.case}, default_query={"a": "b"}
    )
    raw = client.messages.with_raw_response.create(**request(run), timeout=55.0)
    run.bodies.append(raw.headers.get("x-palimpsest-body"))
    return raw.parse()
