package eino_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cloudwego/eino-ext/components/model/openai"
	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/components/tool/utils"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/flow/agent/react"
	"github.com/cloudwego/eino/schema"

	palimpsest "github.com/palimpsest-dev/palimpsest/clients/go"
	"github.com/palimpsest-dev/palimpsest/clients/go/eino"
	"github.com/palimpsest-dev/palimpsest/clients/go/internal/world"
)

type object = world.Object

const (
	question = "Why did the build fail?"
	answer   = "Its disk was full."
)

var (
	call = object{"name": "read_log"}
	// The first two rounds have parallel calls. The second one reads the stored result back.
	turns = []object{
		{"calls": []object{call, call}},
		{"calls": []object{{"name": "SearchTranscript", "input": object{"pattern": "disk full"}}, call}},
		{"text": answer},
	}
)

type setup struct {
	session  *palimpsest.Session
	provider *world.Provider
	model    string
	chat     *eino.Model
	tools    []tool.BaseTool
}

func start(t *testing.T, script ...object) *setup {
	t.Helper()
	ctx := context.Background()
	s := &setup{session: world.StartServer(t).Session(t), provider: world.StartProvider(t), model: "fake-" + world.NameOf(t)}
	if len(script) > 0 {
		s.provider.Script(t, s.model, script...)
	}
	config := &openai.ChatModelConfig{BaseURL: s.provider.URL + "/v1", APIKey: "key", Model: s.model}
	chat, err := openai.NewChatModel(ctx, config)
	world.Check(t, err)
	s.chat = eino.NewModel(chat, s.model, s.session)
	s.tools, err = eino.Tools(ctx, s.session)
	world.Check(t, err)
	readLog, err := utils.InferTool("read_log", "Reads the log.", func(context.Context, struct{}) (string, error) {
		return world.Log, nil
	})
	world.Check(t, err)
	s.tools = append(s.tools, readLog)
	return s
}

func (s *setup) agent(t *testing.T) *adk.ChatModelAgent {
	t.Helper()
	agent, err := adk.NewChatModelAgent(context.Background(), &adk.ChatModelAgentConfig{
		Name: "builder", Description: "Answers questions about builds.", Instruction: "Be brief.", Model: s.chat,
		ToolsConfig: adk.ToolsConfig{ToolsNodeConfig: compose.ToolsNodeConfig{Tools: s.tools}},
	})
	world.Check(t, err)
	return agent
}

// check checks the requests of a run.
func (s *setup) check(t *testing.T) {
	t.Helper()
	requests := s.provider.Requests(t, s.model)
	world.Equal(t, len(requests), len(turns))
	for index, request := range requests {
		sent := string(request.Body)
		world.Equal(t, request.Status, 200)
		world.Equal(t, len(sent) < 50_000, true)
		world.Contains(t, sent, "palimpsest://", index > 0)
		// Only the search of the service has found the last line.
		world.Contains(t, strings.ReplaceAll(sent, `\"pattern\":\"disk full\"`, ""), "disk full", index == 2)
	}
}

func (s *setup) usages(t *testing.T) int {
	t.Helper()
	count := 0
	for message, err := range s.session.Messages(context.Background(), nil) {
		world.Check(t, err)
		count += strings.Count(message.RawJSON(), `"usage"`)
	}
	return count
}

// run runs an agent of the ADK and returns the messages of its events.
func run(t *testing.T, ctx context.Context, agent adk.Agent, streams bool, messages ...adk.Message) []adk.Message {
	t.Helper()
	events := adk.NewRunner(ctx, adk.RunnerConfig{Agent: agent, EnableStreaming: streams}).Run(ctx, messages)
	var all []adk.Message
	for {
		event, more := events.Next()
		if !more {
			return all
		}
		world.Check(t, event.Err)
		message, err := event.Output.MessageOutput.GetMessage()
		world.Check(t, err)
		all = append(all, message)
	}
}

func TestAnAgentOfTheADK(t *testing.T) {
	for _, streams := range []bool{false, true} {
		t.Run(fmt.Sprintf("streams-%v", streams), func(t *testing.T) {
			s := start(t, turns...)
			messages := run(t, context.Background(), s.agent(t), streams, schema.UserMessage(question))
			world.Equal(t, messages[len(messages)-1].Content, answer)
			s.check(t)
			world.Equal(t, s.usages(t), 2)
			// The state of the agent keeps the complete results.
			kept := 0
			for _, message := range messages {
				kept += strings.Count(message.Content, world.Log)
			}
			world.Equal(t, kept, 3)
		})
	}
}

func TestAReActAgent(t *testing.T) {
	ctx := context.Background()
	build := func(t *testing.T, s *setup) *react.Agent {
		agent, err := react.NewAgent(ctx, &react.AgentConfig{
			ToolCallingModel: s.chat, ToolsConfig: compose.ToolsNodeConfig{Tools: s.tools},
		})
		world.Check(t, err)
		return agent
	}
	t.Run("generate", func(t *testing.T) {
		s := start(t, turns...)
		message, err := build(t, s).Generate(ctx, []*schema.Message{schema.UserMessage(question)})
		world.Check(t, err)
		world.Equal(t, message.Content, answer)
		s.check(t)
	})
	t.Run("stream", func(t *testing.T) {
		s := start(t, turns...)
		stream, err := build(t, s).Stream(ctx, []*schema.Message{schema.UserMessage(question)})
		world.Check(t, err)
		defer stream.Close()
		var text strings.Builder
		for {
			chunk, err := stream.Recv()
			if err == io.EOF {
				break
			}
			world.Check(t, err)
			text.WriteString(chunk.Content)
		}
		world.Equal(t, text.String(), answer)
		s.check(t)
	})
}

func TestACompactionIsUndone(t *testing.T) {
	ctx := context.Background()
	s := start(t, object{"text": answer}, object{"text": answer}, object{"text": answer})
	var conversation []adk.Message
	for number := range 12 {
		text := fmt.Sprint(number, strings.Repeat(" a sentence of some words.", 400))
		conversation = append(conversation, schema.UserMessage(text), schema.AssistantMessage("understood "+text, nil))
	}
	conversation = append(conversation, schema.UserMessage(question))
	agent := s.agent(t)
	size := func() int {
		run(t, ctx, agent, false, conversation...)
		requests := s.provider.Requests(t, s.model)
		return len(requests[len(requests)-1].Body)
	}
	before := size()
	_, err := s.session.Compact(ctx, object{"strategy": "extractive"})
	world.Check(t, err)
	world.Equal(t, size() < before/2, true)
	restored, err := s.session.Undo(ctx)
	world.Check(t, err)
	world.Equal(t, restored.Restored.Undone[0].Kind, "compacted")
	world.Equal(t, size(), before)
}

func TestAPromptThatIsTooLongIsShortenedOnce(t *testing.T) {
	for _, streams := range []bool{false, true} {
		t.Run(fmt.Sprintf("streams-%v", streams), func(t *testing.T) {
			s := start(t, turns[0], turns[1], object{"fault": object{"html": 413}}, object{"text": answer})
			messages := run(t, context.Background(), s.agent(t), streams, schema.UserMessage(question))
			world.Equal(t, messages[len(messages)-1].Content, answer)
			requests := s.provider.Requests(t, s.model)
			world.Equal(t, fmt.Sprint(requests[1].Status, requests[2].Status, requests[3].Status), "200 413 200")
			world.Equal(t, len(requests[3].Body) < len(requests[2].Body), true)
		})
	}
}

func TestEachRunHasTheSessionOfItsContext(t *testing.T) {
	s := start(t, append(turns, turns...)...)
	agent := s.agent(t)
	client := s.session
	run(t, context.Background(), agent, false, schema.UserMessage(question))
	server := world.StartServer(t)
	other := server.Session(t)
	ctx := eino.WithSession(context.Background(), other)
	messages := run(t, ctx, agent, false, schema.UserMessage(question))
	world.Equal(t, messages[len(messages)-1].Content, answer)
	for _, session := range []*palimpsest.Session{client, other} {
		info, err := session.Get(context.Background())
		world.Check(t, err)
		world.Equal(t, info.Counts["messages"], 7)
	}
	_, err := eino.NewModel(s.chat, s.model, nil).Generate(context.Background(), nil)
	world.Contains(t, err.Error(), "WithSession", true)
}

func TestAnArrayThatIsNotSendableIsNotSent(t *testing.T) {
	s := start(t)
	open := schema.AssistantMessage("", []schema.ToolCall{{ID: "c1", Function: schema.FunctionCall{Name: "read_log"}}})
	_, err := s.chat.Generate(context.Background(), []*schema.Message{schema.UserMessage(question), open})
	var failed *palimpsest.NotSendableError
	world.Equal(t, errors.As(err, &failed), true)
	world.Equal(t, failed.Reason, "open_calls")
}
