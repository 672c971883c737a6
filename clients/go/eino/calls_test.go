package eino_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/schema"

	"github.com/palimpsest-dev/palimpsest/clients/go/eino"
	"github.com/palimpsest-dev/palimpsest/clients/go/internal/world"
)

func TestCallsOfParallelConversationsReadTheirOwnSessions(t *testing.T) {
	ctx := context.Background()
	tools := model.WithTools([]*schema.ToolInfo{{Name: "read_log"}})
	readLog := schema.ToolCall{ID: "c1", Function: schema.FunctionCall{Name: "read_log", Arguments: "{}"}}
	withLog := []*schema.Message{
		schema.UserMessage(world.Question),
		schema.AssistantMessage("", []schema.ToolCall{readLog}),
		schema.ToolMessage(world.Log, "c1"),
	}
	for _, streams := range []bool{false, true} {
		t.Run(fmt.Sprintf("streams-%v", streams), func(t *testing.T) {
			session := world.StartServer(t).Session(t)
			inner := &recorder{}
			chat := eino.NewModel(inner, "gpt-5", session)
			ask := func(conversation []*schema.Message, calls ...schema.ToolCall) {
				inner.calls = calls
				if !streams {
					_, err := chat.Generate(ctx, conversation, tools)
					world.Check(t, err)
					return
				}
				stream, err := chat.Stream(ctx, conversation, tools)
				world.Check(t, err)
				_, err = schema.ConcatMessageStream(stream)
				world.Check(t, err)
			}
			ask(withLog, schema.ToolCall{ID: "c2", Function: schema.FunctionCall{Name: "SearchTranscript"}})
			ask([]*schema.Message{schema.UserMessage("Count.")})
			result, err := session.RunTool(ctx, object{"type": "function", "id": "c2", "function": object{
				"name": "SearchTranscript", "arguments": `{"pattern":"disk full"}`}})
			world.Check(t, err)
			world.Contains(t, string(result), "was wrong disk full", true)
		})
	}
}

func TestAnErrorOfTheServiceIsAResult(t *testing.T) {
	ctx := context.Background()
	tools, err := eino.Tools(ctx, world.StartServer(t).Session(t))
	world.Check(t, err)
	// No sync has created the session.
	result, err := tools[0].(tool.InvokableTool).InvokableRun(ctx, "{}")
	world.Check(t, err)
	world.Contains(t, result, "SESSION_NOT_FOUND", true)
}
