package palimpsest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// formatOfPath has the formats of the APIs by the end of their paths.
var formatOfPath = map[string]Format{
	"/messages":         AnthropicMessages,
	"/chat/completions": OpenAIChat,
	"/responses":        OpenAIResponses,
}

// Middleware returns a middleware for option.WithMiddleware of the SDKs of Anthropic and OpenAI. It changes the model
// requests of the client, streams included:
//
//   - It syncs the conversation of the request, and sends the view.
//   - It adds the tools of the service, so that the model can read stored results and the transcript.
//   - If the provider rejects the prompt as too long, it requests a shorter view and sends the request once more. If no
//     level can shorten the view, it returns the response of the provider.
//
// Other requests pass unchanged, also those without a conversation in their body. A request fails with a
// [NotSendableError] if its view must not be sent.
func (s *Session) Middleware(
	options ...SyncOption,
) func(*http.Request, func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	return func(request *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		format, isModelRequest := formatOf(request)
		if !isModelRequest {
			return next(request)
		}
		var failure error
		response, err := s.manage(request, format, options, func(managed *http.Request) (*http.Response, error) {
			response, err := next(managed)
			failure = err
			return response, err
		})
		if err != nil && err != failure {
			// Calls of the service were retried already. Both SDKs read this header, and do not retry the request.
			header := http.Header{"X-Should-Retry": {"false"}}
			return &http.Response{Header: header, Body: http.NoBody}, err
		}
		return response, err
	}
}

// Transport returns a [http.RoundTripper] that does the same as [Session.Middleware], for libraries that take a
// [http.Client]. A nil base is [http.DefaultTransport].
func (s *Session) Transport(base http.RoundTripper, options ...SyncOption) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		format, isModelRequest := formatOf(request)
		if !isModelRequest {
			return base.RoundTrip(request)
		}
		return s.manage(request, format, options, base.RoundTrip)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip sends a request.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func formatOf(request *http.Request) (Format, bool) {
	if request.Method != http.MethodPost || request.Body == nil {
		return "", false
	}
	for suffix, format := range formatOfPath {
		if strings.HasSuffix(request.URL.Path, suffix) {
			return format, true
		}
	}
	return "", false
}

// manage syncs and sends a model request. A prompt that the provider rejects as too long is shortened once.
func (s *Session) manage(
	request *http.Request, format Format, given []SyncOption, next func(*http.Request) (*http.Response, error),
) (*http.Response, error) {
	ctx := request.Context()
	data, err := io.ReadAll(request.Body)
	_ = request.Body.Close()
	if err != nil {
		return nil, err
	}
	options := optionsOf(s.options, given)
	body, err := bodyOf(data, format)
	if errors.Is(err, errNoArray) {
		// Other requests have paths with the same end, such as those for a message of a thread.
		return next(withContent(request, data))
	}
	if err != nil {
		return nil, err
	}
	if options.readBack {
		tools, err := s.Tools(ctx, format)
		if err != nil {
			return nil, err
		}
		if body, err = body.withTools(tools); err != nil {
			return nil, err
		}
	}
	send := func(options syncOptions) (*http.Response, error) {
		view, err := s.sync(ctx, body, options)
		if err != nil {
			return nil, err
		}
		content, err := view.Request()
		if err != nil {
			return nil, err
		}
		response, err := next(withContent(request, content))
		if err == nil && response.StatusCode < 400 && response.Body != nil {
			response.Body = &callReader{ReadCloser: response.Body, session: s, view: view}
		}
		return response, err
	}
	response, err := send(options)
	if err != nil || response.StatusCode < 400 {
		return response, err
	}
	answer, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return nil, err
	}
	if isTooLongReply(response.StatusCode, answer) {
		shorter, err := send(optionsOf(s.options, given, []SyncOption{withTooLongText(string(answer))}))
		if !isNotShortened(err) {
			return shorter, err
		}
		// The answer of the provider states the limit, which the error of the service lacks.
	}
	response.Body = io.NopCloser(bytes.NewReader(answer))
	return response, nil
}

// withContent returns a copy of a request with another body.
func withContent(request *http.Request, content []byte) *http.Request {
	changed := request.Clone(request.Context())
	changed.Body = io.NopCloser(bytes.NewReader(content))
	changed.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	changed.ContentLength = int64(len(content))
	if changed.Header.Get("Content-Length") != "" {
		changed.Header.Set("Content-Length", strconv.Itoa(len(content)))
	}
	return changed
}
