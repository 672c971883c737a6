"""Chat Completions with OpenAI's SDK."""

import json

import openai
from pydantic import BaseModel

from case import case
from world import PDF, PNG, Run, lines_of

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS, "strict": True}}
CALLS = {
    "text": "I look.",
    "calls": [
        {"name": "weather", "input": {"city": 'Zürich "Nord"'}},
        {"name": "weather", "input": {"city": "Oslo"}},
    ],
}
ANSWER = {"text": "It rains in Zürich, and 😀 smiles."}


class Weather(BaseModel):
    city: str
    degrees: float


class AskWeather(BaseModel):
    """Asks for the weather."""

    city: str


def user(content):
    return {"role": "user", "content": content}


def request(run, **changes):
    system = {"role": "system", "content": "Be brief."}
    return {"model": run.gpt, "messages": [system, user(f"{run.case}: hello")], **changes}


@case()
def chat_create(run: Run):
    run.script(run.gpt, ANSWER)
    return run.openai.chat.completions.create(
        **request(
            run,
            temperature=0.5,
            max_completion_tokens=500,
            seed=7,
            stop=["STOP"],
            logit_bias={"50256": -100},
            metadata={"a": "b"},
            prompt_cache_key="key",
            service_tier="auto",
            store=False,
            user="someone",
        )
    )


@case()
def chat_create_stream(run: Run):
    run.script(run.gpt, CALLS, ANSWER)
    create = run.openai.chat.completions.create
    ask = request(run, tools=[WEATHER], parallel_tool_calls=True, stream=True)
    return [list(create(**ask)), list(create(**ask, stream_options={"include_usage": True}))]


@case()
def chat_stream(run: Run):
    run.script(run.gpt, CALLS | {"pace": {"delta_bytes": 3}}, ANSWER)
    results = []
    for _ in range(2):
        usage = {"include_usage": True}
        with run.openai.chat.completions.stream(**request(run, tools=[WEATHER]), stream_options=usage) as stream:
            results.append([list(stream), stream.get_final_completion()])
    return results


@case()
def chat_turns(run: Run):
    conversation, responses = [{"role": "developer", "content": "Be brief."}], []
    for turn in range(4):
        conversation.append(user(f"{run.case}: question {turn}"))
        response = run.openai.chat.completions.create(**request(run, messages=conversation))
        conversation.append(response.choices[0].message)
        responses.append(response)
    return responses


@case()
def chat_tool_loop(run: Run):
    run.script(run.gpt, CALLS, ANSWER)
    conversation = [user(f"{run.case}: weather?")]
    create = run.openai.chat.completions.create
    first = create(**request(run, messages=conversation, tools=[WEATHER], tool_choice="required"))
    message = first.choices[0].message
    conversation.append(message)
    conversation += [
        {"role": "tool", "tool_call_id": call.id, "content": f"{call.function.arguments}: rain"}
        for call in message.tool_calls
    ]
    return [first, create(**request(run, messages=conversation, tools=[WEATHER]))]


@case()
def chat_parse(run: Run):
    run.script(run.gpt, {"text": '{"city": "Zürich", "degrees": 21.5}'}, {"calls": [
        {"name": "AskWeather", "input": {"city": "Oslo"}}
    ]})
    parse = run.openai.chat.completions.parse
    parsed = parse(**request(run), response_format=Weather)
    assert parsed.choices[0].message.parsed.degrees == 21.5
    called = parse(**request(run), tools=[openai.pydantic_function_tool(AskWeather)])
    assert called.choices[0].message.tool_calls[0].function.parsed_arguments.city == "Oslo"
    return [parsed, called]


@case()
def chat_stream_parsed(run: Run):
    run.script(run.gpt, {"text": '{"city": "Zürich", "degrees": 21.5}'})
    with run.openai.chat.completions.stream(**request(run), response_format=Weather) as stream:
        return [list(stream), stream.get_final_completion()]


@case()
def chat_contents(run: Run):
    url = {"type": "image_url", "image_url": {"url": "https://example.com/cat.jpg", "detail": "low"}}
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    file = {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}}
    audio = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    text = {"type": "text", "text": f"{run.case}: compare"}
    conversation = [user([url, image, file, audio, text]), {"role": "assistant", "content": "Equal."}, user("Really?")]
    return run.openai.chat.completions.create(**request(run, messages=conversation))


@case()
def chat_refusal_and_length(run: Run):
    create = run.openai.chat.completions.create
    refused = {**request(run), "model": f"{run.gpt}+refuse"}
    cut = {**request(run), "model": f"{run.gpt}+cut"}
    return [create(**refused), list(create(**refused, stream=True)), create(**cut)]


@case(body="managed")
def chat_managed(run: Run):
    window = 60_000 if run.way.name == "gateway" else None
    run.script(run.gpt, agent={"rounds": 16, "output_bytes": [16_000, 16_000]}, window=window)
    command = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
    bash = {"type": "function", "function": {"name": "bash", "parameters": command}}
    conversation, responses = [user(f"{run.case}: run all rounds")], []
    while True:
        ask = request(run, messages=conversation, tools=[bash])
        response = run.openai.chat.completions.create(**ask)
        responses.append(response)
        message = response.choices[0].message
        conversation.append(message)
        if not message.tool_calls:
            return responses
        for call in message.tool_calls:
            output = lines_of(json.loads(call.function.arguments)["command"])
            conversation.append({"role": "tool", "tool_call_id": call.id, "content": output})
