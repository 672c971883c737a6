package palimpsest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// Code is the status code of a failed call. It is also a target for [errors.Is].
type Code string

// The codes of the service, and Canceled for a canceled context.
const (
	InvalidArgument    Code = "INVALID_ARGUMENT"
	FailedPrecondition Code = "FAILED_PRECONDITION"
	OutOfRange         Code = "OUT_OF_RANGE"
	Unauthenticated    Code = "UNAUTHENTICATED"
	PermissionDenied   Code = "PERMISSION_DENIED"
	NotFound           Code = "NOT_FOUND"
	AlreadyExists      Code = "ALREADY_EXISTS"
	Aborted            Code = "ABORTED"
	ResourceExhausted  Code = "RESOURCE_EXHAUSTED"
	Canceled           Code = "CANCELLED"
	Unimplemented      Code = "UNIMPLEMENTED"
	Unavailable        Code = "UNAVAILABLE"
	DeadlineExceeded   Code = "DEADLINE_EXCEEDED"
	Internal           Code = "INTERNAL"
	Unknown            Code = "UNKNOWN"
)

// Error returns the name of the code.
func (c Code) Error() string { return string(c) }

// Error is a failed call.
type Error struct {
	// Code is the status code.
	Code Code
	// Reason is the stable name of the cause, such as SESSION_NOT_FOUND. Empty for errors of the connection.
	Reason string
	// Message describes the failure.
	Message string
	// Status is the HTTP status. 0 for errors of the connection.
	Status int
	// Metadata has the values of the reason, such as the name of the session.
	Metadata map[string]string
	// RetryAfter is the delay before a retry that the server requires. 0 if the server requires none.
	RetryAfter time.Duration
	// Details are all details of the error, as JSON.
	Details []json.RawMessage

	hasRetryInfo bool
	cause        error
}

// Error returns the reason, or else the code, and the message.
func (e *Error) Error() string {
	name := e.Reason
	if name == "" {
		name = string(e.Code)
	}
	return name + ": " + e.Message
}

// Unwrap returns the error of the connection or of the context.
func (e *Error) Unwrap() error { return e.cause }

// Is returns true if the target is the code of the error.
func (e *Error) Is(target error) bool {
	code, ok := target.(Code)
	return ok && code == e.Code
}

// Retryable returns true if the contract permits a retry of the same call.
func (e *Error) Retryable() bool {
	return e.hasRetryInfo || e.Code == Unavailable || e.Code == DeadlineExceeded
}

// NotSendableError reports a view that must not be sent to the model.
type NotSendableError struct {
	// Reason is open_calls, ends_with_assistant or empty.
	Reason string
}

// Error returns the reason.
func (e *NotSendableError) Error() string {
	return "cannot send the messages to the model: " + e.Reason
}

// codeOfStatus has the codes for answers of proxies, which have no error body of the service.
var codeOfStatus = map[int]Code{
	http.StatusBadRequest:            InvalidArgument,
	http.StatusUnauthorized:          Unauthenticated,
	http.StatusForbidden:             PermissionDenied,
	http.StatusNotFound:              NotFound,
	http.StatusRequestEntityTooLarge: ResourceExhausted,
	http.StatusTooManyRequests:       ResourceExhausted,
	http.StatusInternalServerError:   Internal,
	http.StatusBadGateway:            Unavailable,
	http.StatusServiceUnavailable:    Unavailable,
	http.StatusGatewayTimeout:        DeadlineExceeded,
}

// invalid returns the error of an invalid setting or id.
func invalid(format string, values ...any) *Error {
	return &Error{Code: InvalidArgument, Message: fmt.Sprintf(format, values...)}
}

// errorOf returns the error for the HTTP status and the body of an answer.
func (t *transport) errorOf(status int, body []byte) *Error {
	var parsed struct {
		Error *struct {
			Code    int
			Status  Code
			Message string
			Details []json.RawMessage
		}
	}
	// Errors of providers have a message too, but no name of a status.
	if json.Unmarshal(body, &parsed) != nil || parsed.Error == nil || parsed.Error.Status == "" {
		code, known := codeOfStatus[status]
		if !known {
			code = Unknown
		}
		return &Error{Code: code, Status: status, Message: t.foreignAnswer(status)}
	}
	given := parsed.Error
	failed := &Error{Code: given.Status, Status: given.Code, Message: given.Message, Details: given.Details}
	for _, detail := range given.Details {
		failed.readDetail(detail)
	}
	return failed
}

// foreignAnswer describes an answer that has no error of the service.
func (t *transport) foreignAnswer(status int) string {
	answer := fmt.Sprintf("the response from %s has the HTTP status %d and no error of Palimpsest", t.url, status)
	if status == http.StatusNotFound || status == http.StatusMethodNotAllowed {
		return answer + ": this is no Palimpsest server, check the URL of the server"
	}
	return answer + ": a proxy answered, or this is no Palimpsest server"
}

func (e *Error) readDetail(detail json.RawMessage) {
	var fields struct {
		Type       string `json:"@type"`
		Reason     string
		Metadata   map[string]string
		RetryDelay string
	}
	if json.Unmarshal(detail, &fields) != nil {
		return
	}
	switch {
	case strings.HasSuffix(fields.Type, ".ErrorInfo"):
		e.Reason, e.Metadata = fields.Reason, fields.Metadata
	case strings.HasSuffix(fields.Type, ".RetryInfo"):
		e.hasRetryInfo = true
		e.RetryAfter, _ = time.ParseDuration(fields.RetryDelay)
	}
}

// failureOf returns the error for a failure of the connection or of the context.
func failureOf(cause error) *Error {
	code := Unavailable
	var timeout net.Error
	switch {
	case errors.Is(cause, context.Canceled):
		code = Canceled
	case errors.Is(cause, context.DeadlineExceeded), errors.As(cause, &timeout) && timeout.Timeout():
		code = DeadlineExceeded
	}
	return &Error{Code: code, Message: cause.Error(), cause: cause}
}

// tooLong matches the wordings of providers. The service parses the numbers of the text.
var tooLong = regexp.MustCompile(`(?i)prompt (is )?too long|context[ _]length[ _]exceeded|maximum context length` +
	`|exceed\w* (the |this )?(model'?s )?(available |maximum )?context[ _](length|size|window|limit)` +
	`|context window exceeds|input (is )?too long|too many input tokens|input token count` +
	`|maximum number of tokens allowed|longer than the (model's context|maximum model) length` +
	`|reduce the length of the (messages|prompt|input)|request_too_large`)

// tooLarge matches the status 413 in the texts of errors of SDKs.
var tooLarge = regexp.MustCompile(`413 Request Entity Too Large|status code: 413`)

// IsTooLong returns true if the error of a provider's SDK reports that the prompt is too long.
func IsTooLong(err error) bool {
	return err != nil && (tooLong.MatchString(err.Error()) || tooLarge.MatchString(err.Error()))
}

// isNotShortened returns true if a sync with [WithTooLong] failed because no level can shorten the view. The error of the
// provider is then that of the agent: it states the limit, for example one that the output tokens exceed.
func isNotShortened(err error) bool {
	var failed *Error
	return errors.As(err, &failed) && failed.Reason == "PROMPT_TOO_LONG"
}

// isTooLongReply returns true if a provider's answer reports that the prompt is too long.
func isTooLongReply(status int, body []byte) bool {
	switch status {
	case http.StatusRequestEntityTooLarge:
		return true
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusInternalServerError:
		return tooLong.Match(body)
	}
	return false
}
