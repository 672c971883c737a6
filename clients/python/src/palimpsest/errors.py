"""Exceptions of the package, and the errors of the service that can be retried."""

from __future__ import annotations

import re
from typing import Any

JsonObject = dict[str, Any]


class PalimpsestError(Exception):
    """Base class of all exceptions of this package."""


class NotSendableError(PalimpsestError):
    """The view is not sendable to the model. `reason` is the cause, such as `open_calls`."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Cannot send the messages to the model: {reason}")
        self.reason = reason


class ApiError(PalimpsestError):
    """A failed call.

    `reason` is the stable name of the cause, such as `SESSION_NOT_FOUND`. It is empty if the error comes from the
    connection. `code` is the status code, such as `NOT_FOUND`, and `status` is the HTTP status, or 0.
    """

    code = "UNKNOWN"

    def __init__(self, message: str, *, status: int = 0, details: list[JsonObject] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.details: list[JsonObject] = details or []
        info = self._detail("ErrorInfo")
        self.reason: str = info.get("reason", "")
        self.metadata: dict[str, str] = info.get("metadata", {})
        delay = self._detail("RetryInfo").get("retryDelay")
        #: Seconds to wait before a retry, or None.
        self.retry_after: float | None = float(delay.rstrip("s")) if delay else None

    def __str__(self) -> str:
        return f"{self.reason or self.code}: {self.message}"

    @property
    def retryable(self) -> bool:
        """True if the contract permits a retry of the same call."""
        return self.retry_after is not None or isinstance(self, UnavailableError | DeadlineExceededError)

    def _detail(self, kind: str) -> JsonObject:
        return next((it for it in self.details if it.get("@type", "").endswith(f".{kind}")), {})


class InvalidArgumentError(ApiError):
    """A field of the request is missing, malformed or out of range."""

    code = "INVALID_ARGUMENT"


class NotFoundError(ApiError):
    """The session, message, tool call or tool does not exist."""

    code = "NOT_FOUND"


class AlreadyExistsError(ApiError):
    """The session exists, or an id is used for other content."""

    code = "ALREADY_EXISTS"


class AbortedError(ApiError):
    """The session changed. Read it and decide again."""

    code = "ABORTED"


class FailedPreconditionError(ApiError):
    """The state or the policy of the session does not permit the call."""

    code = "FAILED_PRECONDITION"


class ResourceExhaustedError(ApiError):
    """The server is overloaded, or a limit or quota is exceeded."""

    code = "RESOURCE_EXHAUSTED"


class UnauthenticatedError(ApiError):
    """The credential is missing or invalid."""

    code = "UNAUTHENTICATED"

    def __str__(self) -> str:
        # The server knows only the header, and not the setting of the program.
        return f"{super().__str__()}. In Python, pass `api_key` or set PALIMPSEST_API_KEY."


class PermissionDeniedError(ApiError):
    """The credential lacks a right in the project."""

    code = "PERMISSION_DENIED"


class UnavailableError(ApiError):
    """The server or its store cannot be reached now."""

    code = "UNAVAILABLE"


class DeadlineExceededError(ApiError):
    """The call did not finish before its deadline. A change can still take effect."""

    code = "DEADLINE_EXCEEDED"


class UnimplementedError(ApiError):
    """The version of the server does not implement the call."""

    code = "UNIMPLEMENTED"


class InternalError(ApiError):
    """The service has a defect. Report `metadata["trace_id"]` to the operator."""

    code = "INTERNAL"


_BY_CODE = {kind.code: kind for kind in ApiError.__subclasses__()}
# For answers of proxies, which have no error body of the service.
_BY_STATUS: dict[int, type[ApiError]] = {
    400: InvalidArgumentError,
    401: UnauthenticatedError,
    403: PermissionDeniedError,
    404: NotFoundError,
    413: ResourceExhaustedError,
    429: ResourceExhaustedError,
    500: InternalError,
    502: UnavailableError,
    503: UnavailableError,
    504: DeadlineExceededError,
}


def error_from(status: int, body: object) -> ApiError:
    """Returns the exception for the HTTP status and the parsed body of an answer."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        kind = _BY_STATUS.get(status, ApiError)
        return kind(f"HTTP status {status} without an error of Palimpsest", status=status)
    kind = _BY_CODE.get(error.get("status", ""), ApiError)
    return kind(error.get("message", ""), status=error.get("code", status), details=error.get("details"))


# Wordings of providers. The service parses the numbers of the text.
_TOO_LONG = re.compile(
    r"prompt (is )?too long|context[ _]length[ _]exceeded|maximum context length|exceed\w* (the |this )?"
    r"(model'?s )?(available |maximum )?context[ _](length|size|window|limit)|context window exceeds"
    r"|input (is )?too long|too many input tokens|input token count|maximum number of tokens allowed"
    r"|longer than the (model's context|maximum model) length|reduce the length of the (messages|prompt|input)"
    r"|request_too_large",
    re.IGNORECASE,
)


def is_too_long(error: BaseException) -> bool:
    """Returns true if a provider's exception reports that the prompt is too long."""
    status = getattr(error, "status_code", None)
    if status == 413:
        return True
    return status in (None, 400, 422, 500) and bool(_TOO_LONG.search(str(error)))
