"""The messages of the contract, from and to the JSON of the HTTP API. Needs the package `protobuf`."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, MutableMapping, MutableSequence
from functools import cache
from importlib.resources import files
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from ._formats import array_field
from ._json import copied, encode, plain
from ._rpcs import Rpc
from ._transport import Request
from .errors import InvalidArgumentError, JsonObject

# The enum that selects typed messages. The JSON of the HTTP API has no fields of this type.
_MESSAGE_FORM = "palimpsest.context.v1.MessageForm"


@cache
def _pool() -> DescriptorPool:
    # A pool of its own, because a program can load stubs of another version of the contract.
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(files("palimpsest").joinpath("contract.binpb").read_bytes()).file:
        pool.Add(file)
    return pool


def method_of(rpc: Rpc) -> MethodDescriptor:
    """Returns the descriptor of an rpc."""
    return _pool().FindServiceByName(rpc.service).methods_by_name[rpc.name]


def request_message(request: Request) -> Message:
    """Returns the message of a request. Raises `InvalidArgumentError` for a field that the contract does not have."""
    rpc = request.rpc
    message = GetMessageClass(method_of(rpc).input_type)()
    if rpc.name == "SyncContext":
        body = dict(request.fields)
        parameters = dict(body.pop("palimpsest"))
        payload = {"json": body, "format": parameters.pop("format", None)}
        _write(message, {"payload": payload}, "")
        _write(message, parameters, "palimpsest.")
    else:
        _write(message, request.fields, "")
    _write(message, {rpc.resource: request.resource_name}, "")
    return message


def reply_json(request: Request, message: Message) -> JsonObject:
    """Returns the JSON of a reply, or of an element of a stream."""
    reply: JsonObject = _read(message)
    if request.rpc.name != "SyncContext":
        return reply
    reply.update(reply.pop("context", {}))
    if not request.fields["palimpsest"].get("known_etag"):
        # The view does not contain the system messages at the start of the array.
        array = request.fields[array_field(request.fields)]
        lead = copied(array[: reply["lead_messages"]]) if reply["lead_messages"] else []
        reply["messages"] = [*lead, *reply.get("messages", [])]
    return reply


def details_json(status: bytes) -> list[JsonObject]:
    """Returns the details of a serialized `google.rpc.Status`, without those of unknown types."""
    message: Any = GetMessageClass(_pool().FindMessageTypeByName("google.rpc.Status")).FromString(status)
    details = []
    for detail in message.details:
        try:
            details.append(MessageToDict(detail, descriptor_pool=_pool()))
        except TypeError:
            continue
    return details


def _has_json(field: FieldDescriptor) -> bool:
    """Returns true for bytes that contain a JSON text."""
    return field.type == field.TYPE_BYTES and (field.name == "json" or field.name.endswith("_json"))


def _map_value(field: Any) -> FieldDescriptor:
    """Returns the field for the values of a map."""
    value: FieldDescriptor = field.message_type.fields_by_name["value"]
    return value


@cache
def _fields(kind: Descriptor) -> dict[str, FieldDescriptor]:
    """Returns the fields of a message by their names in the JSON."""
    fields: dict[str, FieldDescriptor] = {}
    for field in kind.fields:
        if field.enum_type is not None and field.enum_type.full_name == _MESSAGE_FORM:
            continue
        name = field.name.removesuffix("_json") if _has_json(field) else field.name
        # A typed field has the same content as the field with JSON, which takes its name.
        if name not in fields or _has_json(field):
            fields[name] = field
    return fields


def _short_name(kind: EnumDescriptor, name: str) -> str:
    """Returns the name of an enum's value in the JSON: `SYNC_OUTCOME_NEW` of `SyncOutcome` is `new`."""
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", kind.name).upper()
    return name.removeprefix(f"{prefix}_").lower()


@cache
def _names(kind: EnumDescriptor) -> dict[int, str]:
    """Returns the short names of an enum's values."""
    return {value.number: _short_name(kind, value.name) for value in kind.values}


@cache
def _numbers(kind: EnumDescriptor) -> dict[str, int]:
    """Returns the numbers of an enum's values by their names, full and short."""
    full = {value.name: value.number for value in kind.values}
    return {**full, **{name: number for number, name in _names(kind).items()}}


def _write(message: Message, fields: Mapping[str, Any], path: str) -> None:
    """Sets fields of a message. `path` precedes their names in errors."""
    known = _fields(message.DESCRIPTOR)
    for name, value in fields.items():
        # A parameter of a query can name a field of a nested message, such as `filter.text`.
        first, _, rest = name.partition(".")
        if first not in known:
            raise InvalidArgumentError(f"`{path}{name}` is not a field of the request.")
        if value is not None:
            try:
                _set(message, known[first], {rest: value} if rest else value, f"{path}{first}")
            except (AttributeError, TypeError, ValueError) as error:
                raise InvalidArgumentError(f"`{path}{first}` has no valid value: {error}") from error


def _set(message: Message, field: FieldDescriptor, value: Any, path: str) -> None:
    target = getattr(message, field.name)
    if isinstance(target, MutableMapping):
        entry = _map_value(field)
        for key, item in value.items():
            if entry.message_type is None:
                target[key] = _scalar(entry, item)
            else:
                _write_message(target[key], item, f"{path}.{key}")
    elif isinstance(target, MutableSequence):
        for index, item in enumerate(value):
            if field.message_type is None:
                target.append(_scalar(field, item))
            else:
                added: Any = target
                _write_message(added.add(), item, f"{path}[{index}]")
    elif field.message_type is None:
        setattr(message, field.name, _scalar(field, value))
    else:
        target.SetInParent()
        _write_message(target, value, path)


def _write_message(message: Any, value: Any, path: str) -> None:
    # Field masks, times and durations are texts in JSON. Paths have underscores, unlike those of Protocol Buffers.
    if message.DESCRIPTOR.full_name == "google.protobuf.FieldMask":
        message.paths.extend(value.split(","))
    elif hasattr(message, "FromJsonString"):
        message.FromJsonString(value)
    else:
        _write(message, value if isinstance(value, Mapping) else plain(value), f"{path}.")


def _scalar(field: FieldDescriptor, value: Any) -> Any:
    if _has_json(field):
        return encode(value)
    if field.type == field.TYPE_BYTES:
        return base64.b64decode(value)
    if field.enum_type is None or not isinstance(value, str):
        return value
    numbers = _numbers(field.enum_type)
    if value not in numbers:
        raise ValueError(f"{value!r} is not the name of a value")
    return numbers[value]


def _read(message: Any) -> Any:
    """Returns the JSON of a message, with the defaults of fields that cannot be absent."""
    if hasattr(message, "ToJsonString"):
        return message.ToJsonString()
    result: JsonObject = {}
    for name, field in _fields(message.DESCRIPTOR).items():
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if isinstance(value, MutableMapping):
            entry = _map_value(field)
            result[name] = {str(key): _value(entry, item) for key, item in value.items()}
        elif isinstance(value, MutableSequence):
            result[name] = [_value(field, item) for item in value]
        # An enum without a value and an empty JSON text are omitted.
        elif (single := _value(field, value)) is not None:
            result[name] = single
    return result


def _value(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        return _read(value)
    if field.enum_type is not None:
        name = _names(field.enum_type).get(value, value)
        return None if name == "unspecified" else name
    if _has_json(field):
        return json.loads(value) if value else None
    return base64.b64encode(value).decode() if field.type == field.TYPE_BYTES else value
