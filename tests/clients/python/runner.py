"""Plays a scenario against real servers: runner.py SCENARIO WORLD OUTPUT. See ../README.md."""

import hashlib
import importlib
import json
import sys
import threading

import grpc
from google.protobuf import json_format, message_factory, symbol_database

# Imports the types of status details, so that they can be looked up by name.
from google.rpc import error_details_pb2, status_pb2  # noqa: F401
from palimpsest.context.v1 import errors_pb2, view_pb2  # noqa: F401

from scenario import at, fill, make_text
from show import Show

PACKAGE = "palimpsest.context.v1"
MODULES = {
    "AdminService": "admin_service",
    "ContextService": "context_service",
    "SessionService": "session_service",
}
LARGEST_MESSAGE = 32 << 20


def to_json(message):
    return json_format.MessageToDict(message)


class Runner:
    """A run of a scenario."""

    def __init__(self, scenario, world):
        self.world = world
        self.names = {name: make_text(recipe) for name, recipe in scenario["texts"].items()}
        self.show = Show(scenario["show"])
        self.channels = {name: self.connect(address) for name, address in world["servers"].items()}
        self.held = {}
        self.arrays = {}

    def connect(self, address):
        with open(self.world["ca_file"], "rb") as file:
            credentials = grpc.ssl_channel_credentials(file.read())
        options = [
            ("grpc.max_receive_message_length", LARGEST_MESSAGE),
            ("grpc.max_send_message_length", LARGEST_MESSAGE),
        ]
        return grpc.secure_channel(address, credentials, options)

    def play(self, step):
        """Plays one step and returns its line."""
        if "release" in step:
            self.held.pop(step["release"]).cancel()
            return self.show.line(step["name"], "OK")
        if "resume" in step:
            call, streams = self.held[step["resume"]], True
        else:
            call, streams = self.begin(step)
        if "cancel_after_ms" in step:
            timer = threading.Timer(step["cancel_after_ms"] / 1_000, call.cancel)
            timer.start()
        answers, error = self.read(call, streams, step)
        return self.told(step, call, streams, answers, error)

    def begin(self, step):
        """Sends the request."""
        service_name, method_name = step["call"].split(".")
        module = MODULES[service_name]
        pb2 = importlib.import_module(f"palimpsest.context.v1.{module}_pb2")
        services = importlib.import_module(f"palimpsest.context.v1.{module}_pb2_grpc")
        method = pb2.DESCRIPTOR.services_by_name[service_name].methods_by_name[method_name]
        request = message_factory.GetMessageClass(method.input_type)()
        json_format.ParseDict(fill(step.get("request", {}), self.names), request)
        metadata = list(step.get("headers", {}).items())
        key = step.get("key", "agent")
        if key is not None:
            metadata.append(("authorization", f"Bearer {self.world['keys'][key]}"))
        stub = getattr(services, f"{service_name}Stub")(self.channels[step.get("server", "main")])
        call = getattr(stub, method_name)
        if not method.server_streaming:
            call = call.future
        timeout = step.get("deadline_ms", 30_000) / 1_000
        return call(request, timeout=timeout, metadata=metadata), method.server_streaming

    def read(self, call, streams, step):
        """Returns the answers that the step reads, and the error of the call."""
        answers = []
        try:
            if not streams:
                return [call.result()], None
            while len(answers) != step.get("read"):
                answers.append(next(call))
            if "hold" in step:
                self.held[step["hold"]] = call
            elif "resume" not in step:
                call.cancel()
        except StopIteration:
            pass
        except (grpc.RpcError, grpc.FutureCancelledError):
            return answers, call
        return answers, None

    def told(self, step, call, streams, answers, error):
        """Returns the line of a call."""
        parts = {}
        values = [to_json(answer) for answer in answers]
        if values:
            parts["answers" if streams else "answer"] = values if streams else values[0]
        if "headers_shown" in step:
            parts["headers"] = shown_headers(call, step["headers_shown"])
        if error is None:
            self.look(step, answers, values if streams else values[0], parts)
            return self.show.line(step["name"], "OK", **parts)
        if not step.get("client_status"):
            parts["message"] = error.details()
            details = list(details_of(error))
            if details:
                parts["details"] = details
        return self.show.line(step["name"], error.code().name, **parts)

    def look(self, step, answers, value, parts):
        """Processes the answers of a successful call: array, captures and checks."""
        for name, path in step.get("capture", {}).items():
            self.names[name] = at(path, value)
        if "array" in step:
            array = self.arrays.setdefault(step["array"], [])
            for answer in answers:
                keep = getattr(answer, "keep_messages", 0) or getattr(answer, "first_message_index", 0)
                array[keep:] = answer.messages_json
            parts["array"] = self.array(step["array"]).decode()
        if "checks" in step:
            checks = fill(step["checks"], self.names)
            parts["checks"] = [self.holds(check, answers, value) for check in checks]

    def array(self, name):
        return b"[" + b",".join(self.arrays[name]) + b"]"

    def holds(self, check, answers, value):
        """Returns true if a check passes."""
        wanted = check["equals"]
        if "value" in check:
            return at(check["value"], value) == wanted
        if "array" in check:
            found, wanted = self.array(check["array"]), self.array(wanted)
        else:
            found = b"".join(getattr(answer, check["bytes"]) for answer in answers)
            wanted = wanted.encode()[check.get("from", 0) : check.get("to")]
        return hashlib.sha256(found).digest() == hashlib.sha256(wanted).digest()


def shown_headers(call, names):
    """Returns headers, and trailers if a header does not exist."""
    every = {**dict(call.trailing_metadata() or ()), **dict(call.initial_metadata() or ())}
    return {name: every[name] for name in names if name in every}


def details_of(error):
    """Returns the details of a status, by the names of their types."""
    for key, value in error.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            continue
        for detail in status_pb2.Status.FromString(value).details:
            name = detail.type_url.split("/")[-1]
            message = symbol_database.Default().pool.FindMessageTypeByName(name)
            message = message_factory.GetMessageClass(message).FromString(detail.value)
            yield {"type": name, "value": to_json(message)}


def main(scenario, world, output):
    with open(scenario, encoding="utf-8") as file:
        scenario = json.load(file)
    with open(world, encoding="utf-8") as file:
        runner = Runner(scenario, json.load(file))
    with open(output, "w", encoding="utf-8") as file:
        for step in scenario["steps"]:
            try:
                file.write(runner.play(step) + "\n")
            except Exception as error:
                sys.exit(f"step {step['name']!r}: {error!r}")
    for call in runner.held.values():
        call.cancel()


if __name__ == "__main__":
    main(*sys.argv[1:])
