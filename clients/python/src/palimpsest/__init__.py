"""Client of Palimpsest, the service that owns the context of LLM agents."""

from ._formats import Format, ToolCall
from .async_session import AsyncSession
from .client import AsyncPalimpsest, Palimpsest
from .errors import (
    AbortedError,
    AlreadyExistsError,
    ApiError,
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    NotSendableError,
    PalimpsestError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
    is_too_long,
)
from .session import Session
from .view import Budget, Tokens, View, ViewWarning

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "ApiError",
    "AsyncPalimpsest",
    "AsyncSession",
    "Budget",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "Format",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "NotSendableError",
    "Palimpsest",
    "PalimpsestError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "Session",
    "Tokens",
    "ToolCall",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "View",
    "ViewWarning",
    "is_too_long",
]
