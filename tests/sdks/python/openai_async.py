"""The asynchronous client of OpenAI's SDK."""

import openai_chat as chat
import openai_responses as responses
from anthropic_requests import endless, retried
from case import case
from openai_chat import ANSWER, CALLS, Weather
from world import Run, raised_async


@case()
async def openai_async_create(run: Run):
    client = run.async_openai
    run.script(run.gpt, ANSWER, CALLS, ANSWER, ANSWER)
    created = await client.chat.completions.create(**chat.request(run))
    ask = chat.request(run, tools=[chat.WEATHER])
    stream = await client.chat.completions.create(**ask, stream=True)
    chunks = [chunk async for chunk in stream]
    response = await client.responses.create(**responses.request(run))
    stream = await client.responses.create(**responses.request(run), stream=True)
    return [created, chunks, response, [event async for event in stream]]


@case()
async def openai_async_streams(run: Run):
    client = run.async_openai
    run.script(run.gpt, CALLS, CALLS)
    async with client.chat.completions.stream(**chat.request(run, tools=[chat.WEATHER])) as stream:
        completion = [[event async for event in stream], await stream.get_final_completion()]
    async with client.responses.stream(**responses.request(run, tools=[responses.WEATHER])) as stream:
        return [completion, [event async for event in stream], await stream.get_final_response()]


@case()
async def openai_async_parse(run: Run):
    client = run.async_openai
    text = {"text": '{"city": "Oslo", "degrees": -3}'}
    run.script(run.gpt, text, text)
    completion = await client.chat.completions.parse(**chat.request(run), response_format=Weather)
    return [completion, await client.responses.parse(**responses.request(run), text_format=Weather)]


@case()
async def openai_async_errors(run: Run):
    client = run.async_openai
    run.script(run.gpt, retried(429, {"millis": 10}), ANSWER, retried(500, None))
    raw = await client.chat.completions.with_raw_response.create(**chat.request(run))
    failed = client.with_options(max_retries=0).responses.create(**responses.request(run))
    return [raw.retries_taken, dict(raw.headers), raw.parse(), await raised_async(failed)]


@case(aborts=2)
async def openai_async_aborts(run: Run):
    client = run.async_openai
    run.script(run.gpt, endless(), endless())
    async with client.chat.completions.stream(**chat.request(run)) as stream:
        chunk = await anext(aiter(stream))
    async with client.responses.stream(**responses.request(run)) as stream:
        return [chunk, await anext(aiter(stream))]
