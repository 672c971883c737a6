"""The asynchronous client of Anthropic's SDK."""

import asyncio

from anthropic import beta_async_tool

from anthropic_messages import ANSWER, CALL, WEATHER, Weather, request, user
from anthropic_requests import endless, retried
from case import case
from world import Run, raised_async


@case()
async def async_messages(run: Run):
    run.script(run.claude, CALL, ANSWER)
    messages = run.async_anthropic.messages
    created = await messages.create(**request(run, tools=[WEATHER]))
    stream = await messages.create(**request(run), stream=True)
    return [created, [event async for event in stream]]


@case()
async def async_stream(run: Run):
    run.script(run.claude, CALL | {"thinking": "Let me see."})
    ask = request(run, tools=[WEATHER], thinking={"type": "adaptive"})
    async with run.async_anthropic.messages.stream(**ask) as stream:
        events = [event async for event in stream]
        return [events, await stream.get_final_message()]


@beta_async_tool
async def weather(city: str) -> str:
    """Returns the weather of a city."""
    return f"It rains in {city}."


@case()
async def async_tool_runner(run: Run):
    run.script(run.claude, CALL, ANSWER)
    runner = run.async_anthropic.beta.messages.tool_runner(**request(run, tools=[weather]), thread=False)
    return [message async for message in runner]


@case()
async def async_parse(run: Run):
    run.script(run.claude, {"text": '{"city": "Oslo", "degrees": -3}'})
    return await run.async_anthropic.messages.parse(**request(run), output_format=Weather)


@case()
async def async_count_and_raw(run: Run):
    messages = run.async_anthropic.messages
    counted = await messages.count_tokens(model=run.claude, messages=[user(f"{run.case}: count")])
    raw = await messages.with_raw_response.create(**request(run))
    async with messages.with_streaming_response.create(**request(run), stream=True) as response:
        lines = [line async for line in response.iter_lines()]
    return [counted, await raw.parse(), dict(raw.headers), raw.request_id, lines]


@case()
async def async_errors(run: Run):
    run.script(run.claude, retried(429, {"millis": 10}), ANSWER, retried(529, None))
    client = run.async_anthropic
    raw = await client.messages.with_raw_response.create(**request(run))
    failed = client.with_options(max_retries=0).messages.create(**request(run))
    return [raw.retries_taken, await raised_async(failed)]


@case(aborts=2)
async def async_aborts(run: Run):
    run.script(run.claude, endless(), endless())
    async with run.async_anthropic.messages.stream(**request(run, max_tokens=8_000)) as stream:
        first = await anext(aiter(stream))
    seen = asyncio.Event()

    async def read():
        async with run.async_anthropic.messages.stream(**request(run, max_tokens=8_000)) as stream:
            async for _ in stream:
                seen.set()

    # A cancelled task ends its request.
    task = asyncio.create_task(read())
    await seen.wait()
    task.cancel()
    return [first, await asyncio.gather(task, return_exceptions=True) != []]


@case()
async def async_concurrent(run: Run):
    # Conversations with a common beginning at the same time.
    async def one(number):
        ask = request(run, messages=[user(f"{run.case}: hi"), user(f"number {number}")])
        return (await run.async_anthropic.messages.create(**ask)).content

    return await asyncio.gather(*(one(number) for number in range(8)))
