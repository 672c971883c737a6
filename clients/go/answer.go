package palimpsest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
)

// Function runs a tool of the agent. The input is the JSON object of the call. The output is a string, a list of
// content in the format of the provider, or a value that is sent to the model as JSON. An error becomes an error result
// for the model.
type Function func(ctx context.Context, input json.RawMessage) (any, error)

// Functions has a function for the name of each tool of the agent.
type Functions map[string]Function

// Answer runs the tool calls of a response and appends the response and the results to the conversation. It returns
// true if the model has ended its turn. The service runs calls of its own tools, and the functions run all others,
// calls of one response concurrently. An error of the service becomes an error result for the model. The response is
// that of an SDK, or its JSON. The usage of the response is sent with the next sync.
//
// The conversation does not change if Answer fails.
func Answer[Array ~[]Element, Element any](
	ctx context.Context, session *Session, response any, conversation *Array, functions Functions,
) (bool, error) {
	parsed, err := responseOf(response)
	if err != nil {
		return false, err
	}
	results, err := session.runAll(ctx, parsed.calls, functions)
	if err != nil {
		return false, err
	}
	messages, err := parsed.newMessages(results)
	if err != nil {
		return false, err
	}
	added := make(Array, len(messages))
	for index, message := range messages {
		if err := json.Unmarshal(message, &added[index]); err != nil {
			return false, fmt.Errorf("palimpsest: %T cannot hold a message of %s: %w", added[index], parsed.format, err)
		}
	}
	*conversation = append(*conversation, added...)
	session.mutex.Lock()
	session.last = parsed
	session.mutex.Unlock()
	return parsed.isFinal, nil
}

// Run calls the model and answers its tool calls until it makes none. It returns the last response. `call` sends the
// conversation with an SDK that has the middleware of the session.
func Run[Response any, Array ~[]Element, Element any](
	ctx context.Context, session *Session, conversation *Array, functions Functions,
	call func(context.Context) (Response, error),
) (Response, error) {
	for {
		response, err := call(ctx)
		if err != nil {
			return response, err
		}
		isFinal, err := Answer(ctx, session, response, conversation, functions)
		if isFinal || err != nil {
			return response, err
		}
	}
}

// runAll runs the calls of a response and returns their results in the order of the calls.
func (s *Session) runAll(ctx context.Context, calls []*toolCall, functions Functions) ([]json.RawMessage, error) {
	results := make([]json.RawMessage, len(calls))
	failures := make([]error, len(calls))
	var group sync.WaitGroup
	for index, call := range calls {
		group.Add(1)
		go func() {
			defer group.Done()
			results[index], failures[index] = s.run(ctx, call, functions)
		}()
	}
	group.Wait()
	for _, err := range failures {
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}

func (s *Session) run(ctx context.Context, call *toolCall, functions Functions) (json.RawMessage, error) {
	function, known := functions[call.name]
	if !known && s.isOwnName(call.name) {
		result, err := s.runOwn(ctx, call)
		var failed *Error
		if ctx.Err() == nil && errors.As(err, &failed) {
			// An error of one call must not discard the results of the functions.
			return call.result(failed.Error(), true)
		}
		return result, err
	}
	if !known {
		return call.result("no tool has the name "+call.name, true)
	}
	output, err := function(ctx, call.input)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return call.result(err.Error(), true)
	}
	content, err := contentOf(output)
	if err != nil {
		return call.result(err.Error(), true)
	}
	return call.result(content, false)
}

// contentOf returns the content of a result: a string or a list as it is, and any other value as JSON text.
func contentOf(output any) (any, error) {
	data, err := rawJSON(output)
	if err != nil || len(data) == 0 || data[0] == '"' || data[0] == '[' {
		return data, err
	}
	return string(data), nil
}
