package eino_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/schema"

	"github.com/palimpsest-dev/palimpsest/clients/go/eino"
	"github.com/palimpsest-dev/palimpsest/clients/go/internal/world"
)

// recorder is a component that keeps the messages of its last request. Its responses have the calls.
type recorder struct {
	messages []*schema.Message
	calls    []schema.ToolCall
}

func (r *recorder) Generate(_ context.Context, messages []*schema.Message, _ ...model.Option) (*schema.Message, error) {
	r.messages = messages
	return schema.AssistantMessage(world.Answer, r.calls), nil
}

func (r *recorder) Stream(
	ctx context.Context, messages []*schema.Message, options ...model.Option,
) (*schema.StreamReader[*schema.Message], error) {
	message, err := r.Generate(ctx, messages, options...)
	return schema.StreamReaderFromArray([]*schema.Message{message}), err
}

func (r *recorder) WithTools([]*schema.ToolInfo) (model.ToolCallingChatModel, error) { return r, nil }

func TestCallsWithAnyIDKeepTheirFields(t *testing.T) {
	for name, id := range map[string]string{
		"empty": "", "illegal": "functions.read_log:0", "long": strings.Repeat("a", 41), "repeated": "call_0",
	} {
		t.Run(name, func(t *testing.T) {
			inner := &recorder{}
			chat := eino.NewModel(inner, "gpt-5", world.StartServer(t).Session(t))
			conversation := []*schema.Message{schema.UserMessage(world.Question)}
			for round := range 3 {
				calls := make([]schema.ToolCall, 2)
				for index := range calls {
					calls[index] = schema.ToolCall{
						ID: id, Type: "function", Extra: map[string]any{"signature": fmt.Sprint(round, index)},
						Function: schema.FunctionCall{Name: "read_log", Arguments: "{}"},
					}
				}
				if id != "" {
					calls = calls[:1]
				}
				response := schema.AssistantMessage("", calls)
				response.ReasoningContent = fmt.Sprint("reason ", round)
				conversation = append(conversation, response)
				for index := range calls {
					result := fmt.Sprint("result ", round, index)
					if round == 1 {
						result = world.Log
					}
					conversation = append(conversation, schema.ToolMessage(result, id, schema.WithToolName("read_log")))
				}
				_, err := chat.Generate(context.Background(), conversation)
				world.Check(t, err)
			}
			world.Equal(t, len(inner.messages), len(conversation))
			for index, message := range inner.messages {
				want := conversation[index]
				world.Equal(t, message.ReasoningContent, want.ReasoningContent)
				world.Equal(t, message.ToolCallID, want.ToolCallID)
				world.Equal(t, message.ToolName, want.ToolName)
				for position, call := range message.ToolCalls {
					world.Equal(t, call.ID, id)
					world.Equal(t, fmt.Sprint(call.Extra), fmt.Sprint(want.ToolCalls[position].Extra))
				}
				if want.Content == world.Log {
					world.Contains(t, message.Content, "palimpsest://", true)
				} else if want.Role == schema.Tool {
					world.Equal(t, message.Content, want.Content)
				}
			}
		})
	}
}
