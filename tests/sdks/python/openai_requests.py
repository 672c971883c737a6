"""Options of requests, errors, retries, raw responses and other endpoints with OpenAI's SDK."""

import json

import openai_chat as chat
import openai_responses as responses
from anthropic_requests import endless, retried
from case import case
from openai_chat import ANSWER
from world import Run, raised


def both(run, client=None):
    """Returns the calls of both APIs."""
    client = client or run.openai
    return [
        (client.chat.completions, lambda: chat.request(run)),
        (client.responses, lambda: responses.request(run)),
    ]


@case()
def openai_extras(run: Run):
    results = []
    for resource, ask in both(run):
        options = {"extra_headers": {"x-extra": "one"}, "extra_query": {"extra": ["two", "three"]}}
        results.append(resource.create(**ask(), **options, extra_body={"user": "someone"}))
    return results


@case()
def openai_codings(run: Run):
    results = []
    for coding in ("gzip", "deflate", "br", "zstd"):
        for resource, ask in both(run):
            turn = ANSWER | {"pace": {"coding": coding}}
            run.script(run.gpt, turn, turn)
            raw = resource.with_raw_response.create(**ask())
            streamed = resource.with_raw_response.create(**ask(), stream=True)
            results.append([raw.parse(), dict(raw.headers), dict(streamed.headers), list(streamed.parse())])
    return results


@case()
def openai_raw_responses(run: Run):
    results = []
    for resource, ask in both(run):
        raw = resource.with_raw_response.create(**ask())
        results += [raw.parse(), raw.status_code, dict(raw.headers), raw.request_id, raw.retries_taken]
        with resource.with_streaming_response.create(**ask()) as response:
            results += [dict(response.headers), response.request_id, b"".join(response.iter_bytes())]
        with resource.with_streaming_response.create(**ask(), stream=True) as response:
            results += [dict(response.headers), list(response.iter_lines())]
    return results


@case()
def openai_retries(run: Run):
    waits = [{"fraction": 10}, {"millis": 10}]
    results = []
    for resource, ask in both(run):
        for status in (408, 409, 429, 500, 503):
            run.script(run.gpt, *(retried(status, wait) for wait in waits), ANSWER)
            raw = resource.with_raw_response.create(**ask())
            results.append([status, raw.retries_taken, raw.parse()])
    run.script(run.gpt, *[retried(429, {"millis": 10})] * 2)
    client = run.openai.with_options(max_retries=1)
    return results + [raised(lambda: client.responses.create(**responses.request(run)))]


@case()
def openai_errors(run: Run):
    client = run.openai.with_options(max_retries=0)
    results = []
    for resource, ask in both(run, client):
        for status in (400, 401, 403, 404, 409, 413, 422, 429, 500, 503):
            run.script(run.gpt, *[retried(status, {"seconds": 30})] * 2)
            results.append(raised(lambda: resource.create(**ask())))
            results.append(raised(lambda: resource.create(**ask(), stream=True)))
        run.script(run.gpt, retried(429, {"limits": 60}), {"fault": {"html": 502}})
        results += [raised(lambda: resource.create(**ask())), raised(lambda: resource.create(**ask()))]
        for change in ({"model": "no-such-model"}, {"extra_body": {"unknown": 1}}):
            results.append(raised(lambda: resource.create(**(ask() | change))))
    other = client.with_options(api_key="invalid")
    return results + [raised(lambda: other.chat.completions.create(**chat.request(run)))]


@case()
def openai_broken_streams(run: Run):
    faults = [
        {"fault": {"error_after_event": 3}},
        {"fault": {"failed_after_event": 3}},
        {"fault": {"cut_after_event": 3}},
        {"fault": {"reset_after_event": 3}},
        # In one frame, because the SDK stops reading at the broken event.
        {"fault": {"malformed_after_event": 3}, "pace": {"split": "together"}},
    ]
    results = []
    for resource, ask in both(run):
        for fault in faults:
            run.script(run.gpt, ANSWER | fault)
            events = []

            def read():
                events.extend(resource.create(**ask(), stream=True))
                raise EOFError

            results.append([raised(read), events])
    return results


@case(aborts=2)
def openai_aborts(run: Run):
    results = []
    for resource, ask in both(run):
        run.script(run.gpt, endless())
        with resource.create(**ask(), stream=True) as stream:
            results.append(next(iter(stream)))
    return results


@case(body=None)
def openai_files_and_batches(run: Run):
    client = run.openai
    line = {"custom_id": "one", "method": "POST", "url": "/v1/chat/completions", "body": chat.request(run)}
    file = client.files.create(file=("input.jsonl", json.dumps(line).encode()), purpose="batch")
    created = client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"a": "b"}
    )
    states = [created, client.batches.retrieve(created.id), client.batches.retrieve(created.id)]
    output = client.files.content(states[-1].output_file_id)
    listed = [list(client.batches.list(limit=1)), list(client.files.list(limit=1))]
    gone = [client.files.delete(file.id), raised(lambda: client.files.retrieve(file.id))]
    return [file, states, output.text, listed, client.batches.cancel(created.id), gone]


@case(body=None)
def openai_models(run: Run):
    models = run.openai.models
    return [list(models.list()), models.retrieve("gpt-fake"), raised(lambda: models.retrieve("none"))]
