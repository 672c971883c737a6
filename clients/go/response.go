package palimpsest

import (
	"encoding/json"
	"errors"
	"slices"
)

// modelResponse is a response of a model: its JSON, and the messages and the tool calls in it.
type modelResponse struct {
	format   Format
	json     json.RawMessage
	messages []json.RawMessage
	calls    []*toolCall
	// isFinal is true if the model has ended its turn: nothing has to be sent back to it.
	isFinal bool
}

// responseOf reads a response of any format: an object of an SDK, or its JSON.
func responseOf(value any) (*modelResponse, error) {
	data, err := rawJSON(value)
	if err != nil {
		return nil, err
	}
	object, err := fieldsOf(data)
	if err != nil {
		return nil, err
	}
	response := &modelResponse{json: data}
	switch {
	case object.has("choices"):
		response.format = OpenAIChat
		err = response.readChat(object)
	case object.has("output"):
		response.format = OpenAIResponses
		response.messages = object.list("output")
		err = response.readCalls(response.messages, "function_call")
	case object.has("content"):
		response.format = AnthropicMessages
		err = response.readAnthropic(object)
	default:
		err = errors.New("palimpsest: the response has no known format")
	}
	response.isFinal = len(response.calls) == 0 && object.text("stop_reason") != "pause_turn"
	return response, err
}

func (r *modelResponse) readChat(object fields) error {
	choices := object.list("choices")
	if len(choices) == 0 {
		return errors.New("palimpsest: the response has no choice")
	}
	choice, err := fieldsOf(choices[0])
	if err != nil {
		return err
	}
	message, err := fieldsOf(choice["message"])
	if err != nil {
		return err
	}
	// The accumulator of the SDK for streams has all fields of all kinds of calls, most of them empty.
	for name, value := range message {
		if slices.Contains([]string{`null`, `""`, `{}`, `[]`}, string(value)) {
			delete(message, name)
		}
	}
	delete(message, "function_call")
	if audio, err := fieldsOf(message["audio"]); err == nil && audio.text("id") == "" {
		delete(message, "audio")
	}
	var entries []json.RawMessage
	for _, entry := range message.list("tool_calls") {
		call, err := fieldsOf(entry)
		if err != nil {
			return err
		}
		if function, err := fieldsOf(call["function"]); err == nil && function.text("name") != "" {
			delete(call, "custom")
			delete(call, "index")
			call["type"] = json.RawMessage(`"function"`)
		}
		entry, err := encode(call)
		if err != nil {
			return err
		}
		entries = append(entries, entry)
	}
	if len(entries) > 0 {
		if message["tool_calls"], err = encode(entries); err != nil {
			return err
		}
	} else if !message.has("content") {
		message["content"] = json.RawMessage(`""`)
	}
	encoded, err := encode(message)
	if err != nil {
		return err
	}
	r.messages = []json.RawMessage{encoded}
	return r.readCalls(entries, "function")
}

func (r *modelResponse) readAnthropic(object fields) error {
	content := object.list("content")
	if len(content) == 0 {
		// A message without content is rejected in a later request.
		return nil
	}
	message, err := encode(map[string]any{"role": "assistant", "content": content})
	if err != nil {
		return err
	}
	r.messages = []json.RawMessage{message}
	return r.readCalls(content, "tool_use")
}

func (r *modelResponse) readCalls(items []json.RawMessage, kind string) error {
	for _, item := range items {
		object, err := fieldsOf(item)
		if err != nil {
			return err
		}
		if object.text("type") != kind {
			continue
		}
		call, err := callOf(item)
		if err != nil {
			return err
		}
		r.calls = append(r.calls, call)
	}
	return nil
}

// newMessages returns the messages that follow the request: those of the response, and the results of its calls.
func (r *modelResponse) newMessages(results []json.RawMessage) ([]json.RawMessage, error) {
	if r.format != AnthropicMessages || len(results) == 0 {
		return append(slices.Clone(r.messages), results...), nil
	}
	message, err := encode(map[string]any{"role": "user", "content": results})
	return append(slices.Clone(r.messages), message), err
}
