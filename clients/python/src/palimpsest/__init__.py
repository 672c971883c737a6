"""Client of Palimpsest, the service that owns the context of LLM agents."""

from pkgutil import extend_path

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

# Stubs of the contract are in `palimpsest.context.v1`, in another folder.
__path__ = extend_path(__path__, __name__)

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
