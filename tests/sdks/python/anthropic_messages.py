"""Messages, streams, tools and contents with Anthropic's SDK."""

from anthropic import beta_tool
from pydantic import BaseModel

from case import case
from world import PDF, PNG, Run, lines_of

MESSAGES = [{"role": "user", "content": "What is the weather in Zürich? 😀"}]
WEATHER = {
    "name": "weather",
    "description": "Returns the weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALL = {"text": "I look.", "calls": [{"name": "weather", "input": {"city": 'Zürich "Nord"'}}]}
ANSWER = {"text": "It rains in Zürich, and 😀 smiles."}


class Weather(BaseModel):
    city: str
    degrees: float


def user(content):
    return {"role": "user", "content": content}


def request(run, **changes):
    return {"model": run.claude, "max_tokens": 4_000, "messages": [user(f"{run.case}: hello")], **changes}


@case()
def messages_create(run: Run):
    run.script(run.claude, ANSWER)
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    return run.anthropic.messages.create(
        **request(
            run,
            system=system,
            stop_sequences=["STOP"],
            metadata={"user_id": "someone"},
            service_tier="auto",
        )
    )


@case()
def messages_create_stream(run: Run):
    run.script(run.claude, CALL)
    return list(run.anthropic.messages.create(**request(run, tools=[WEATHER]), stream=True))


@case()
def messages_stream(run: Run):
    run.script(run.claude, CALL | {"thinking": "Let me see.", "pace": {"pings": 2, "delta_bytes": 3}})
    thinking = {"type": "enabled", "budget_tokens": 2_000}
    with run.anthropic.messages.stream(**request(run, tools=[WEATHER], thinking=thinking)) as stream:
        events = list(stream)
        return [events, stream.get_final_message(), stream.request_id]


@case()
def messages_text_stream(run: Run):
    run.script(run.claude, ANSWER)
    with run.anthropic.messages.stream(**request(run)) as stream:
        return [list(stream.text_stream), stream.get_final_text(), stream.current_message_snapshot]


@case()
def beta_messages_stream(run: Run):
    run.script(run.claude, CALL)
    with run.anthropic.beta.messages.stream(**request(run, tools=[WEATHER])) as stream:
        return [list(stream), stream.get_final_message()]


@case()
def messages_turns(run: Run):
    conversation, responses = [], []
    for turn in range(4):
        conversation.append(user(f"{run.case}: question {turn}"))
        response = run.anthropic.messages.create(**request(run, messages=conversation))
        # The objects of the SDK are sent back as they are.
        conversation.append({"role": response.role, "content": response.content})
        responses.append(response)
    return responses


@case()
def messages_prefill(run: Run):
    run.script(run.claude, {"text": "{1: 2}"})
    prefill = [user(f"{run.case}: answer in JSON"), {"role": "assistant", "content": "The answer is"}]
    return run.anthropic.messages.create(**request(run, messages=prefill))


@case()
def messages_tool_loop(run: Run):
    run.script(run.claude, CALL, ANSWER)
    conversation = [user(f"{run.case}: weather?")]
    first = run.anthropic.messages.create(
        **request(run, messages=conversation, tools=[WEATHER], tool_choice={"type": "any"})
    )
    call = first.content[-1]
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    content = [{"type": "text", "text": "rain"}, image]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": content, "is_error": False}
    conversation += [{"role": "assistant", "content": first.content}, user([result])]
    return [first, run.anthropic.messages.create(**request(run, messages=conversation, tools=[WEATHER]))]


@beta_tool
def weather(city: str) -> str:
    """Returns the weather of a city.

    Args:
        city: The name of the city.
    """
    return f"It rains in {city}."


@case()
def tool_runner(run: Run):
    run.script(run.claude, CALL, CALL, ANSWER)
    runner = run.anthropic.beta.messages.tool_runner(**request(run, tools=[weather]), thread=False)
    return [message for message in runner]


@case()
def tool_runner_stream(run: Run):
    run.script(run.claude, CALL, ANSWER)
    runner = run.anthropic.beta.messages.tool_runner(**request(run, tools=[weather]), thread=False, stream=True)
    return [[list(stream), stream.get_final_message()] for stream in runner]


@case(body="stateful")
def tool_runner_thread(run: Run):
    # Without `thread=False`, the provider holds the conversation after the first request.
    run.script(run.claude, CALL, CALL, ANSWER)
    runner = run.anthropic.beta.messages.tool_runner(**request(run, tools=[weather]))
    return runner.until_done()


@case(body="stateful")
def message_thread(run: Run):
    thread = run.anthropic.beta.messages.thread(model=run.claude, max_tokens=500)
    first = thread.send(user(f"{run.case}: one"))
    with thread.stream(user("two")) as stream:
        second = stream.get_final_message()
    return [first, second, list(thread.messages)]


@case()
def messages_parse(run: Run):
    run.script(run.claude, {"text": '{"city": "Zürich", "degrees": 21.5}'})
    parsed = run.anthropic.messages.parse(**request(run), output_format=Weather)
    assert parsed.parsed_output.degrees == 21.5
    return parsed


@case()
def messages_stream_parsed(run: Run):
    run.script(run.claude, {"text": '{"city": "Zürich", "degrees": 21.5}'})
    with run.anthropic.messages.stream(**request(run), output_format=Weather) as stream:
        return [list(stream), stream.get_final_message().parsed_output]


@case()
def messages_images(run: Run):
    images = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/cat.jpg"}},
        {"type": "text", "text": f"{run.case}: compare them"},
    ]
    return run.anthropic.messages.create(**request(run, messages=[user(images)]))


@case()
def messages_documents_and_citations(run: Run):
    run.script(run.claude, ANSWER | {"citations": ["it rains", "it snows"]}, ANSWER)
    citations = {"enabled": True}
    text = {"type": "text", "media_type": "text/plain", "data": "Today it rains. Tomorrow it snows."}
    blocks = {"type": "content", "content": [{"type": "text", "text": "One block."}]}
    documents = [
        {"type": "document", "source": text, "title": "Report", "context": "News", "citations": citations},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}},
        {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
        {"type": "document", "source": blocks, "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": f"{run.case}: what is the weather?"},
    ]
    conversation = [user(documents)]
    with run.anthropic.messages.stream(**request(run, messages=conversation)) as stream:
        events, first = list(stream), stream.get_final_message()
    conversation += [{"role": "assistant", "content": first.content}, user("And tomorrow?")]
    return [events, first, run.anthropic.messages.create(**request(run, messages=conversation))]


@case()
def messages_thinking(run: Run):
    thinking = {"type": "enabled", "budget_tokens": 2_000}
    run.script(run.claude, CALL | {"thinking": "I need the tool. 😀"}, ANSWER | {"thinking": "Now I know."}, ANSWER)
    conversation, responses = [user(f"{run.case}: think")], []
    for following in ("tool", "And then?", None):
        ask = request(run, messages=conversation, tools=[WEATHER], thinking=thinking)
        with run.anthropic.messages.stream(**ask) as stream:
            response = stream.get_final_message()
        responses.append(response)
        # The provider rejects thinking that differs from the signed one.
        conversation.append({"role": "assistant", "content": response.content})
        if following == "tool":
            call = response.content[-1].id
            following = [{"type": "tool_result", "tool_use_id": call, "content": "rain"}]
        conversation.append(user(following))
    assert responses[0].content[0].signature
    return responses


@case()
def messages_server_tools(run: Run):
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    call = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "rain"}}
    hit = {"type": "web_search_result", "url": "https://example.com", "title": "Rain", "encrypted_content": "abc="}
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [hit]}
    text = {"type": "text", "text": "It rains."}
    redacted = {"type": "redacted_thinking", "data": "secret"}
    conversation = [
        user(f"{run.case}: search"),
        {"role": "assistant", "content": [redacted, call, result, text]},
        user("Really?"),
    ]
    return run.anthropic.messages.create(**request(run, messages=conversation, tools=[search]))


@beta_tool
def bash(command: str) -> str:
    """Runs a command."""
    return lines_of(command)


def long_conversation(run: Run, **script):
    # Through the gateway, the model has a small window, and the provider rejects any request above it.
    window = 60_000 if run.way.name == "gateway" else None
    agent = {"rounds": 16, "output_bytes": [16_000, 16_000]}
    run.script(run.claude, agent=agent, window=window)
    return request(run, messages=[user(f"{run.case}: run all rounds")], tools=[bash], max_tokens=1_000)


@case(body="managed")
def tool_runner_managed(run: Run):
    runner = run.anthropic.beta.messages.tool_runner(**long_conversation(run), thread=False)
    return [message for message in runner]


@case(body="managed")
def tool_runner_stream_managed(run: Run):
    thinking = {"type": "adaptive"}
    ask = long_conversation(run)
    runner = run.anthropic.beta.messages.tool_runner(**ask, thinking=thinking, thread=False, stream=True)
    return [stream.get_final_message() for stream in runner]
