package eino

import (
	"encoding/json"
	"testing"

	"github.com/cloudwego/eino/schema"

	"github.com/palimpsest-dev/palimpsest/clients/go/internal/world"
)

func text(value string) *string { return &value }

// conversation has a message of each kind.
func conversation() []*schema.Message {
	image := &schema.MessageInputImage{MessagePartCommon: schema.MessagePartCommon{Base64Data: text("aGk="), MIMEType: "image/png"}}
	audio := &schema.MessageInputAudio{MessagePartCommon: schema.MessagePartCommon{Base64Data: text("aGk="), MIMEType: "audio/wav"}}
	call := schema.ToolCall{ID: "c1", Function: schema.FunctionCall{Name: "read_log", Arguments: "{}"}}
	return []*schema.Message{
		schema.SystemMessage("Be brief."),
		{Role: schema.User, UserInputMultiContent: []schema.MessageInputPart{
			{Type: schema.ChatMessagePartTypeText, Text: "See <this>."},
			{Type: schema.ChatMessagePartTypeImageURL, Image: image},
			{Type: schema.ChatMessagePartTypeAudioURL, Audio: audio},
		}},
		{
			Role: schema.Assistant, ReasoningContent: "Hm.", ToolCalls: []schema.ToolCall{call},
			Extra: map[string]any{"signature": "s"},
		},
		schema.ToolMessage("a result", "c1", schema.WithToolName("read_log")),
	}
}

func TestUnchangedMessagesAreThoseOfTheConversation(t *testing.T) {
	given := conversation()
	array, err := toWire(given)
	world.Check(t, err)
	var view []json.RawMessage
	encoded, err := json.Marshal(array.messages)
	world.Check(t, err)
	world.Check(t, json.Unmarshal(encoded, &view))
	messages, err := array.fromWire(view)
	world.Check(t, err)
	for index, message := range messages {
		world.Equal(t, message, given[index])
	}
}

func TestChangedMessagesKeepTheFieldsOfEino(t *testing.T) {
	given := conversation()
	array, err := toWire(given)
	world.Check(t, err)
	media := array.messages[1].Content.([]wirePart)[2].Text
	view := []json.RawMessage{
		json.RawMessage(`{"role":"user","content":[{"type":"text","text":"` + media + `"},{"type":"image_url",` +
			`"image_url":{"url":"data:image/png;base64,aGk="}},{"type":"text","text":"more"}]}`),
		json.RawMessage(`{"role":"assistant","content":"Look.","tool_calls":[{"id":"c1","type":"function",` +
			`"function":{"name":"read_log","arguments":"{}"}}]}`),
		json.RawMessage(`{"role":"tool","tool_call_id":"c1","content":"a preview"}`),
	}
	messages, err := array.fromWire(view)
	world.Check(t, err)
	parts := messages[0].UserInputMultiContent
	world.Equal(t, parts[0].Audio, given[1].UserInputMultiContent[2].Audio)
	world.Equal(t, *parts[1].Image.Base64Data, "aGk=")
	world.Equal(t, parts[1].Image.MIMEType, "image/png")
	world.Equal(t, parts[2].Text, "more")
	world.Equal(t, messages[1].Extra["signature"], any("s"))
	world.Equal(t, messages[1].ReasoningContent, "Hm.")
	world.Equal(t, messages[1].Content, "Look.")
	world.Equal(t, messages[2].Content, "a preview")
	world.Equal(t, messages[2].ToolName, "read_log")
	// The conversation of the caller does not change.
	world.Equal(t, given[3].Content, "a result")
}

func TestEqualMessagesKeepTheirOwnFields(t *testing.T) {
	given := []*schema.Message{
		schema.UserMessage("Go on."),
		{Role: schema.Assistant, Content: "Yes.", ReasoningContent: "The first reason."},
		schema.UserMessage("Go on."),
		{Role: schema.Assistant, Content: "Yes.", ReasoningContent: "The second reason."},
		schema.UserMessage("Yes."),
	}
	for _, removed := range []int{0, 2} {
		array, err := toWire(given)
		world.Check(t, err)
		messages, err := array.fromWire(encoded(t, array.messages[removed:]))
		world.Check(t, err)
		for index, message := range messages {
			world.Equal(t, message, given[removed+index])
		}
	}
}

func encoded(t *testing.T, messages []wireMessage) []json.RawMessage {
	t.Helper()
	data, err := json.Marshal(messages)
	world.Check(t, err)
	var view []json.RawMessage
	world.Check(t, json.Unmarshal(data, &view))
	return view
}
