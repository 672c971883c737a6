"""JSON of request bodies, which can contain objects of the SDKs of providers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Returns the JSON value of a Pydantic model of an SDK, as the SDK itself would send it."""
    if hasattr(value, "model_dump"):
        # The SDKs exclude these fields from requests too. They exist on the client only.
        excluded = getattr(value, "__api_exclude__", None)
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude=excluded)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


def encode(value: Any) -> bytes:
    """Returns the JSON text of a value that can contain models of an SDK."""
    return json.dumps(value, default=plain, ensure_ascii=False, separators=(",", ":")).encode()


def copied(value: Any) -> Any:
    """Returns a deep copy that consists of JSON types only."""
    return json.loads(encode(value))
