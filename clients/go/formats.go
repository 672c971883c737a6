package palimpsest

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Format is the schema of messages, tools and calls.
type Format string

// The formats of the providers' APIs.
const (
	AnthropicMessages Format = "anthropic_messages"
	OpenAIChat        Format = "openai_chat"
	OpenAIResponses   Format = "openai_responses"
)

// fields is a JSON object.
type fields map[string]json.RawMessage

// readFields are the fields of a request body that the service reads.
var readFields = []string{"model", "system", "instructions", "tools", "messages", "input"}

// fieldsOf returns the JSON object of a value: JSON text, a value of an SDK, or any value that encodes as an object.
func fieldsOf(value any) (fields, error) {
	data, err := rawJSON(value)
	if err != nil {
		return nil, err
	}
	var object fields
	if err := json.Unmarshal(data, &object); err != nil {
		return nil, fmt.Errorf("palimpsest: %T is no JSON object: %w", value, err)
	}
	return object, nil
}

// rawJSON returns the JSON of a value. The responses of the SDKs keep the received text, which has unknown fields too.
func rawJSON(value any) (json.RawMessage, error) {
	switch value := value.(type) {
	case json.RawMessage:
		return value, nil
	case []byte:
		return value, nil
	case interface{ RawJSON() string }:
		if raw := value.RawJSON(); raw != "" {
			return json.RawMessage(raw), nil
		}
	}
	return encode(value)
}

// text returns a field that is a string, or else an empty string.
func (f fields) text(name string) string {
	var text string
	_ = json.Unmarshal(f[name], &text)
	return text
}

// has returns true if the field is neither absent nor null.
func (f fields) has(name string) bool {
	return len(f[name]) > 0 && string(f[name]) != "null"
}

// list returns a field that is an array, or else nil.
func (f fields) list(name string) []json.RawMessage {
	var items []json.RawMessage
	_ = json.Unmarshal(f[name], &items)
	return items
}

// body is the body of a model request.
type body struct {
	fields fields
	// array is the name of the field with the conversation.
	array  string
	format Format
}

var errNoArray = errors.New("palimpsest: the body has neither messages nor input")

// bodyOf reads a body. An empty format of a body with messages leaves the detection to the service.
func bodyOf(value any, format Format) (*body, error) {
	object, err := fieldsOf(value)
	if err != nil {
		return nil, err
	}
	if object.has("previous_response_id") || object.has("conversation") {
		return nil, errors.New("palimpsest: send the whole conversation in `input`: " +
			"remove previous_response_id and conversation")
	}
	if object.has("messages") {
		return &body{fields: object, array: "messages", format: format}, nil
	}
	if !object.has("input") {
		return nil, errNoArray
	}
	return &body{fields: object, array: "input", format: OpenAIResponses}, nil
}

// synced returns the part of the body that the service reads.
func (b *body) synced() map[string]any {
	sent := map[string]any{}
	for _, name := range readFields {
		if b.fields.has(name) {
			sent[name] = b.fields[name]
		}
	}
	return sent
}

// target returns the target of the view if the body enables thinking: without it, thinking blocks are omitted.
func (b *body) target() map[string]any {
	var thinking struct{ Type string }
	_ = json.Unmarshal(b.fields["thinking"], &thinking)
	if thinking.Type == "" || thinking.Type == "disabled" || b.format == OpenAIChat {
		return nil
	}
	return map[string]any{"provider": "anthropic", "model": b.fields.text("model"), "thinking": true}
}

// withTools returns the body with the definitions of further tools.
func (b *body) withTools(tools []Tool) (*body, error) {
	definitions := b.fields.list("tools")
	for _, tool := range tools {
		definitions = append(definitions, tool.Definition)
	}
	if len(definitions) == 0 {
		return b, nil
	}
	encoded, err := encode(definitions)
	if err != nil {
		return nil, err
	}
	extended := fields{"tools": encoded}
	for name, value := range b.fields {
		if name != "tools" {
			extended[name] = value
		}
	}
	return &body{fields: extended, array: b.array, format: b.format}, nil
}

// toolCall is a tool call of a model. json is the call in the format of the provider.
type toolCall struct {
	format   Format
	id, name string
	input    json.RawMessage
	json     json.RawMessage
}

// callOf reads a call of any format: a tool_use block, an entry of tool_calls, or a function_call item.
func callOf(value any) (*toolCall, error) {
	object, err := fieldsOf(value)
	if err != nil {
		return nil, err
	}
	data, _ := rawJSON(value)
	kind := object.text("type")
	switch {
	case kind == "tool_use":
		return &toolCall{AnthropicMessages, object.text("id"), object.text("name"), object["input"], data}, nil
	case kind == "function_call":
		input := arguments(object.text("arguments"))
		return &toolCall{OpenAIResponses, object.text("call_id"), object.text("name"), input, data}, nil
	case object.has("function"):
		function, err := fieldsOf(object["function"])
		if err != nil {
			return nil, err
		}
		input := arguments(function.text("arguments"))
		return &toolCall{OpenAIChat, object.text("id"), function.text("name"), input, data}, nil
	}
	return nil, fmt.Errorf("palimpsest: a %q is no tool call of a known format", kind)
}

// arguments returns the arguments of a call as JSON. A model can produce text that is no JSON.
func arguments(text string) json.RawMessage {
	if !json.Valid([]byte(text)) {
		return json.RawMessage("{}")
	}
	return json.RawMessage(text)
}

// result returns the result of a call in its format.
func (c *toolCall) result(output any, isError bool) (json.RawMessage, error) {
	switch c.format {
	case AnthropicMessages:
		result := map[string]any{"type": "tool_result", "tool_use_id": c.id, "content": output}
		if isError {
			result["is_error"] = true
		}
		return encode(result)
	case OpenAIChat:
		return encode(map[string]any{"role": "tool", "tool_call_id": c.id, "content": output})
	default:
		return encode(map[string]any{"type": "function_call_output", "call_id": c.id, "output": output})
	}
}
