package palimpsest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	firstDelay   = 100 * time.Millisecond
	longestDelay = 10 * time.Second
	// The connection outlives the deadline, so that the server can report a passed deadline itself.
	grace = 500 * time.Millisecond
	// A watch sends a heartbeat every 30 seconds, so a longer silence is a broken connection.
	longestSilence = 90 * time.Second
)

// request is one call: an HTTP method, a path below /v1, and the query or the body.
type request struct {
	method string
	path   string
	query  url.Values
	body   any
}

// page returns the request for a page of a list. The token is a field of the body, if there is one.
func (r request) page(token string) request {
	if body, ok := r.body.(map[string]any); ok {
		body = maps.Clone(body)
		body["page_token"] = token
		r.body = body
		return r
	}
	query := url.Values{"page_token": {token}}
	maps.Copy(query, r.query)
	r.query = query
	return r
}

// transport sends calls.
type transport struct {
	url, key   string
	http       *http.Client
	timeout    time.Duration
	maxRetries int
	warnings   *warningLog
	// invalid is the error of each call, because a setting or an id is invalid.
	invalid error
}

// attempts counts the attempts of one call and computes the delays between them.
type attempts struct {
	deadline time.Time
	left     int
	delay    time.Duration
}

// attempts returns the attempts of a call. Its deadline is that of the context, or the timeout, whichever is earlier.
func (t *transport) attempts(ctx context.Context) *attempts {
	deadline := time.Now().Add(t.timeout)
	if given, ok := ctx.Deadline(); ok && given.Before(deadline) {
		deadline = given
	}
	return &attempts{deadline: deadline, left: t.maxRetries, delay: firstDelay}
}

// wait waits until the next attempt after a failure. It returns the failure if there is no next attempt.
func (a *attempts) wait(ctx context.Context, failed error) error {
	var failure *Error
	if !errors.As(failed, &failure) || !failure.Retryable() || a.left == 0 || ctx.Err() != nil {
		return failed
	}
	// Random jitter keeps clients from retrying at the same moment.
	delay := time.Duration(float64(max(a.delay, failure.RetryAfter)) * (1 + rand.Float64()/2))
	if delay >= time.Until(a.deadline) {
		return failed
	}
	a.left--
	a.delay = min(a.delay*2, longestDelay)
	select {
	case <-time.After(delay):
		return nil
	case <-ctx.Done():
		return failureOf(ctx.Err())
	}
}

// call sends a request and decodes the answer. Errors that the contract calls retryable are retried.
func (t *transport) call(ctx context.Context, r request, answer any) error {
	return t.callWith(ctx, t.attempts(ctx), r, answer)
}

// callWith sends a request with attempts that other requests of the same call can share.
func (t *transport) callWith(ctx context.Context, attempts *attempts, r request, answer any) error {
	content, err := encodeBody(r.body)
	if err != nil {
		return err
	}
	for {
		data, err := t.once(ctx, r, content, attempts.deadline)
		if err == nil {
			return json.Unmarshal(data, answer)
		}
		if err := attempts.wait(ctx, err); err != nil {
			return err
		}
	}
}

func (t *transport) once(ctx context.Context, r request, content []byte, deadline time.Time) ([]byte, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(grace))
	defer cancel()
	response, err := t.open(ctx, r, content, deadline)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, failureOf(err)
	}
	return data, nil
}

// open sends a request. A zero deadline is that of a watch, which has none.
func (t *transport) open(ctx context.Context, r request, content []byte, deadline time.Time) (*http.Response, error) {
	if t.invalid != nil {
		return nil, t.invalid
	}
	address := t.url + "/v1" + r.path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	sent, err := http.NewRequestWithContext(ctx, r.method, address, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	sent.Header.Set("Content-Type", "application/json")
	sent.Header.Set("Accept", "application/json, application/x-ndjson")
	if t.key != "" {
		sent.Header.Set("Authorization", "Bearer "+t.key)
	}
	if !deadline.IsZero() {
		left := max(time.Until(deadline).Milliseconds(), 1)
		sent.Header.Set("Connect-Timeout-Ms", strconv.FormatInt(left, 10))
	}
	response, err := t.http.Do(sent)
	if err != nil {
		return nil, failureOf(err)
	}
	if response.StatusCode >= 300 {
		defer response.Body.Close()
		data, err := io.ReadAll(response.Body)
		if err != nil {
			return nil, failureOf(err)
		}
		return nil, t.errorOf(response.StatusCode, data)
	}
	return response, nil
}

// lines yields the elements of a stream. It makes one attempt. A watch has a zero deadline.
func (t *transport) lines(ctx context.Context, r request, deadline time.Time) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		content, err := encodeBody(r.body)
		if err != nil {
			yield(nil, err)
			return
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		if !deadline.IsZero() {
			var release context.CancelFunc
			ctx, release = context.WithDeadline(ctx, deadline.Add(grace))
			defer release()
		}
		silence := time.AfterFunc(longestSilence, func() { cancel(errors.New("the stream is silent")) })
		defer silence.Stop()
		response, err := t.open(ctx, r, content, deadline)
		if err != nil {
			yield(nil, err)
			return
		}
		defer response.Body.Close()
		reader := bufio.NewReader(response.Body)
		for {
			line, err := reader.ReadBytes('\n')
			silence.Reset(longestSilence)
			if line = bytes.TrimSpace(line); len(line) > 0 {
				if bytes.HasPrefix(line, []byte(`{"error":`)) {
					yield(nil, t.errorOf(response.StatusCode, line))
					return
				}
				if !yield(line, nil) {
					return
				}
			}
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(nil, streamFailure(ctx, err))
				return
			}
		}
	}
}

// streamFailure returns the error of a broken stream. Silence is a broken connection, and not a canceled call.
func streamFailure(ctx context.Context, err error) *Error {
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		return failureOf(err)
	}
	return failureOf(cause)
}

func encodeBody(body any) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	return encode(body)
}

// encode returns the JSON of a value, with <, > and & as they are.
func encode(value any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimRight(buffer.Bytes(), "\n"), err
}

// pages yields the items of all pages of a list.
func pages[T any, P record[T]](ctx context.Context, t *transport, r request, field string) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		for next := r; ; {
			var page map[string]json.RawMessage
			var items []json.RawMessage
			var token string
			err := t.call(ctx, next, &page)
			if err == nil {
				err = json.Unmarshal(page[field], &items)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for _, item := range items {
				if value, err := decode[T, P](item); !yield(value, err) || err != nil {
					return
				}
			}
			_ = json.Unmarshal(page["next_page_token"], &token)
			if token == "" {
				return
			}
			next = r.page(token)
		}
	}
}
