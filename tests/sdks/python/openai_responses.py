"""The Responses API with OpenAI's SDK."""

import json

from openai.lib.responses_tool_runner import RegisteredFunction, ResponsesToolRunner

from case import case
from openai_chat import ANSWER, CALLS, PARAMETERS, Weather
from world import PDF, PNG, Run, lines_of

WEATHER = {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": True}
REASONING = {"effort": "low", "summary": "auto"}


def user(text):
    return {"role": "user", "content": text}


def request(run, **changes):
    return {"model": run.gpt, "input": [user(f"{run.case}: hello")], "store": False, **changes}


@case()
def responses_create(run: Run):
    run.script(run.gpt, ANSWER)
    return run.openai.responses.create(
        **request(
            run,
            input=f"{run.case}: hello",
            instructions="Be brief.",
            max_output_tokens=500,
            metadata={"a": "b"},
            prompt_cache_key="key",
            temperature=0.5,
            truncation="disabled",
            safety_identifier="someone",
        )
    )


@case()
def responses_create_stream(run: Run):
    run.script(run.gpt, CALLS | {"thinking": "Let me see."})
    ask = request(run, tools=[WEATHER], reasoning=REASONING, stream=True)
    return list(run.openai.responses.create(**ask))


@case()
def responses_stream(run: Run):
    run.script(run.gpt, CALLS | {"thinking": "Let me see.", "pace": {"delta_bytes": 3}})
    ask = request(run, tools=[WEATHER], reasoning=REASONING)
    with run.openai.responses.stream(**ask) as stream:
        return [list(stream), stream.get_final_response()]


@case()
def responses_turns(run: Run):
    run.script(run.gpt, CALLS | {"thinking": "I need the tool."}, ANSWER | {"thinking": "Now I know."}, ANSWER)
    conversation, responses = [user(f"{run.case}: weather?")], []
    for following in ([], [user("And then?")], []):
        response = run.openai.responses.create(
            **request(
                run,
                input=conversation,
                tools=[WEATHER],
                reasoning=REASONING,
                # The provider verifies the encrypted reasoning.
                include=["reasoning.encrypted_content"],
            )
        )
        responses.append(response)
        conversation += response.output
        calls = [item for item in response.output if item.type == "function_call"]
        conversation += [
            {"type": "function_call_output", "call_id": call.call_id, "output": "rain"} for call in calls
        ]
        conversation += following
    return responses


@case(body="stateful")
def responses_previous(run: Run):
    # The provider stores the first response.
    create = run.openai.responses.create
    first = create(**request(run, store=True))
    previous = {"previous_response_id": first.id}
    second = create(**request(run, input="And then?", store=True) | previous)
    with run.openai.responses.stream(**request(run, input="Again?") | previous) as stream:
        return [first, second, stream.get_final_response()]


@case()
def responses_parse(run: Run):
    text = {"text": '{"city": "Zürich", "degrees": 21.5}'}
    run.script(run.gpt, text, text)
    parsed = run.openai.responses.parse(**request(run), text_format=Weather)
    assert parsed.output_parsed.degrees == 21.5
    with run.openai.responses.stream(**request(run), text_format=Weather) as stream:
        return [parsed, list(stream), stream.get_final_response().output_parsed]


@case()
def responses_contents(run: Run):
    content = [
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
        {"type": "input_image", "image_url": "https://example.com/cat.jpg", "detail": "low"},
        {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
        {"type": "input_text", "text": f"{run.case}: compare"},
    ]
    return run.openai.responses.create(**request(run, input=[user(content)]))


@case()
def responses_custom_tool(run: Run):
    run.script(run.gpt, {"calls": [{"name": "patch", "input": {"input": "*** Begin\n+ü"}}]}, ANSWER)
    tools = [{"type": "custom", "name": "patch"}]
    conversation = [user(f"{run.case}: patch it")]
    with run.openai.responses.stream(**request(run, input=conversation, tools=tools)) as stream:
        first = stream.get_final_response()
    call = first.output[-1]
    conversation += [call, {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "done"}]
    return [first, run.openai.responses.create(**request(run, input=conversation, tools=tools))]


def look(arguments):
    return f"It rains in {arguments['city']}."


@case()
def responses_tool_runner(run: Run):
    run.script(run.gpt, CALLS, ANSWER)
    runner = ResponsesToolRunner(functions=[RegisteredFunction(WEATHER, look)])
    return runner.run(run.openai, request(run), max_steps=5)


@case(body="managed")
def responses_managed(run: Run):
    window = 60_000 if run.way.name == "gateway" else None
    run.script(run.gpt, agent={"rounds": 16, "output_bytes": [16_000, 16_000]}, window=window)
    command = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
    bash = {"type": "function", "name": "bash", "parameters": command, "strict": False}
    conversation, responses = [user(f"{run.case}: run all rounds")], []
    while True:
        ask = request(run, input=conversation, tools=[bash], reasoning=REASONING)
        ask |= {"include": ["reasoning.encrypted_content"]}
        with run.openai.responses.stream(**ask) as stream:
            response = stream.get_final_response()
        responses.append(response)
        conversation += response.output
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return responses
        for call in calls:
            output = lines_of(json.loads(call.arguments)["command"])
            conversation.append({"type": "function_call_output", "call_id": call.call_id, "output": output})


@case(body=None)
def responses_compact(run: Run):
    compacted = run.openai.responses.compact(model=run.gpt, input=[user(f"{run.case}: hello")])
    return compacted


@case()
def responses_incomplete(run: Run):
    create = run.openai.responses.create
    cut = {**request(run), "model": f"{run.gpt}+cut"}
    refused = {**request(run), "model": f"{run.gpt}+refuse"}
    return [create(**cut), list(create(**cut, stream=True)), create(**refused)]
