package eino

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cloudwego/eino/schema"
)

// wireMessage is a message of Chat Completions.
type wireMessage struct {
	Role       string     `json:"role"`
	Content    any        `json:"content,omitempty"`
	Name       string     `json:"name,omitempty"`
	ToolCalls  []wireCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

// wireCall is a tool call of Chat Completions.
type wireCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// wirePart is a part of the content of a message of Chat Completions.
type wirePart struct {
	Type     string     `json:"type"`
	Text     string     `json:"text,omitempty"`
	ImageURL *wireImage `json:"image_url,omitempty"`
}

type wireImage struct {
	URL    string `json:"url"`
	Detail string `json:"detail,omitempty"`
}

// wireArray is a conversation in the format of Chat Completions. It finds the messages of eino again, because these
// have fields that Chat Completions does not have, such as reasoning and the extra fields of a component.
type wireArray struct {
	messages []wireMessage
	// known has the messages by their JSON, which contains the role. Equal messages are in the order of the conversation.
	known map[string][]*schema.Message
	// calls has the messages with the calls, and results those with the results, by the id of the call.
	calls, results map[string]*schema.Message
	// toolCalls has the calls of the conversation by their synced ids.
	toolCalls map[string]schema.ToolCall
	// media has the parts without a counterpart in Chat Completions by the text that represents them.
	media map[string]schema.MessageInputPart
}

func toWire(conversation []*schema.Message) (*wireArray, error) {
	array := &wireArray{
		messages:  make([]wireMessage, len(conversation)),
		known:     map[string][]*schema.Message{},
		calls:     map[string]*schema.Message{},
		results:   map[string]*schema.Message{},
		toolCalls: map[string]schema.ToolCall{},
		media:     map[string]schema.MessageInputPart{},
	}
	aliases := newAliases()
	for index, message := range conversation {
		converted := array.convert(message)
		aliases.apply(&converted)
		data, err := json.Marshal(converted)
		if err != nil {
			return nil, err
		}
		array.messages[index] = converted
		key := canonical(data)
		array.known[key] = append(array.known[key], message)
		for position, call := range converted.ToolCalls {
			array.calls[call.ID] = message
			array.toolCalls[call.ID] = message.ToolCalls[position]
		}
		if converted.ToolCallID != "" {
			array.results[converted.ToolCallID] = message
		}
	}
	return array, nil
}

func (a *wireArray) convert(message *schema.Message) wireMessage {
	converted := wireMessage{Role: string(message.Role), Name: message.Name, ToolCallID: message.ToolCallID}
	for _, call := range message.ToolCalls {
		entry := wireCall{ID: call.ID, Type: "function"}
		entry.Function.Name, entry.Function.Arguments = call.Function.Name, call.Function.Arguments
		converted.ToolCalls = append(converted.ToolCalls, entry)
	}
	if parts := a.parts(message); len(parts) > 0 {
		converted.Content = parts
	} else if message.Content != "" || len(message.ToolCalls) == 0 {
		converted.Content = message.Content
	}
	return converted
}

// parts returns the content of a message with several parts.
func (a *wireArray) parts(message *schema.Message) []wirePart {
	var parts []wirePart
	for _, part := range message.UserInputMultiContent {
		parts = append(parts, a.part(part))
	}
	for _, part := range message.AssistantGenMultiContent {
		input := schema.MessageInputPart{Type: part.Type, Text: part.Text}
		if part.Type != schema.ChatMessagePartTypeText {
			// A model message in Chat Completions has text only.
			input.Text, _ = marker(part)
			input.Type = schema.ChatMessagePartTypeText
		}
		parts = append(parts, a.part(input))
	}
	for _, part := range message.MultiContent {
		input := schema.MessageInputPart{Type: part.Type, Text: part.Text}
		if image := part.ImageURL; image != nil {
			common := schema.MessagePartCommon{URL: &image.URL, MIMEType: image.MIMEType}
			input.Image = &schema.MessageInputImage{MessagePartCommon: common, Detail: image.Detail}
		} else if part.Type != schema.ChatMessagePartTypeText {
			input.Text, _ = marker(part)
			input.Type = schema.ChatMessagePartTypeText
		}
		parts = append(parts, a.part(input))
	}
	return parts
}

func (a *wireArray) part(part schema.MessageInputPart) wirePart {
	if part.Type == schema.ChatMessagePartTypeText {
		return wirePart{Type: "text", Text: part.Text}
	}
	if image := part.Image; image != nil {
		url := fmt.Sprintf("data:%s;base64,", image.MIMEType)
		if image.Base64Data != nil {
			url += *image.Base64Data
		} else if image.URL != nil {
			url = *image.URL
		}
		return wirePart{Type: "image_url", ImageURL: &wireImage{URL: url, Detail: string(image.Detail)}}
	}
	text, err := marker(part)
	if err == nil {
		a.media[text] = part
	}
	return wirePart{Type: "text", Text: text}
}

// marker returns a text that represents a part.
func marker(part any) (string, error) {
	data, err := json.Marshal(part)
	digest := sha256.Sum256(data)
	return fmt.Sprintf("[media %x]", digest[:12]), err
}

// fromWire returns the messages of a view. Unchanged messages are those of the conversation.
func (a *wireArray) fromWire(view []json.RawMessage) ([]*schema.Message, error) {
	messages := make([]*schema.Message, len(view))
	// A view removes old messages first, so equal messages are matched from the end.
	for index := len(view) - 1; index >= 0; index-- {
		if original := a.take(canonical(view[index])); original != nil {
			messages[index] = original
			continue
		}
		changed, err := a.changed(view[index])
		if err != nil {
			return nil, err
		}
		messages[index] = changed
	}
	return messages, nil
}

// take returns the last message with a JSON that was not returned yet. The first one stays, because a view can repeat a
// message.
func (a *wireArray) take(key string) *schema.Message {
	known := a.known[key]
	if len(known) == 0 {
		return nil
	}
	last := known[len(known)-1]
	if len(known) > 1 {
		a.known[key] = known[:len(known)-1]
	}
	return last
}

// changed returns a message that the view has changed or added.
func (a *wireArray) changed(data json.RawMessage) (*schema.Message, error) {
	var given struct {
		wireMessage
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(data, &given); err != nil {
		return nil, err
	}
	message := schema.Message{Role: schema.RoleType(given.Role), Name: given.Name, ToolCallID: given.ToolCallID}
	if original, known := a.results[given.ToolCallID]; known {
		message = *original
	}
	if len(given.ToolCalls) > 0 {
		if original, known := a.calls[given.ToolCalls[0].ID]; known {
			message = *original
		}
	}
	message.Content, message.ToolCalls = "", nil
	message.MultiContent, message.UserInputMultiContent, message.AssistantGenMultiContent = nil, nil, nil
	for index, call := range given.ToolCalls {
		function := schema.FunctionCall{Name: call.Function.Name, Arguments: call.Function.Arguments}
		position := index
		entry, known := a.toolCalls[call.ID]
		if !known {
			entry = schema.ToolCall{ID: call.ID, Type: call.Type}
		}
		entry.Index, entry.Function = &position, function
		message.ToolCalls = append(message.ToolCalls, entry)
	}
	var parts []wirePart
	if json.Unmarshal(given.Content, &message.Content) == nil || json.Unmarshal(given.Content, &parts) != nil {
		return &message, nil
	}
	if message.Role != schema.User {
		message.Content = joined(parts)
		return &message, nil
	}
	for _, part := range parts {
		message.UserInputMultiContent = append(message.UserInputMultiContent, a.inputPart(part))
	}
	return &message, nil
}

func (a *wireArray) inputPart(part wirePart) schema.MessageInputPart {
	if original, known := a.media[part.Text]; known {
		return original
	}
	if part.ImageURL == nil {
		return schema.MessageInputPart{Type: schema.ChatMessagePartTypeText, Text: part.Text}
	}
	image := &schema.MessageInputImage{Detail: schema.ImageURLDetail(part.ImageURL.Detail)}
	kind, data, isData := strings.Cut(strings.TrimPrefix(part.ImageURL.URL, "data:"), ";base64,")
	if isData {
		image.MIMEType, image.Base64Data = kind, &data
	} else {
		image.URL = &part.ImageURL.URL
	}
	return schema.MessageInputPart{Type: schema.ChatMessagePartTypeImageURL, Image: image}
}

func joined(parts []wirePart) string {
	texts := make([]string, len(parts))
	for index, part := range parts {
		texts[index] = part.Text
	}
	return strings.Join(texts, "\n")
}

// canonical returns JSON with sorted keys, so that equal messages have equal texts.
func canonical(data []byte) string {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return string(data)
	}
	sorted, err := json.Marshal(value)
	if err != nil {
		return string(data)
	}
	return string(sorted)
}

// lastResponse returns the last response of the model, if the conversation has its usage. Token counts are then exact
// up to the response.
func lastResponse(conversation []*schema.Message, messages []wireMessage, model string) map[string]any {
	for index := len(conversation) - 1; index >= 0; index-- {
		message := conversation[index]
		if message.Role != schema.Assistant {
			continue
		}
		if message.ResponseMeta == nil || message.ResponseMeta.Usage == nil {
			return nil
		}
		used := message.ResponseMeta.Usage
		response := map[string]any{
			"object": "chat.completion", "model": model,
			"choices": []any{map[string]any{
				"index": 0, "finish_reason": message.ResponseMeta.FinishReason, "message": messages[index],
			}},
			"usage": map[string]any{
				"prompt_tokens": used.PromptTokens, "completion_tokens": used.CompletionTokens,
				"total_tokens":          used.TotalTokens,
				"prompt_tokens_details": map[string]any{"cached_tokens": used.PromptTokenDetails.CachedTokens},
			},
		}
		return map[string]any{"format": "openai_chat", "json": response}
	}
	return nil
}
