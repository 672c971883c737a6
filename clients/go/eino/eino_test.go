package eino_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cloudwego/eino-ext/components/model/openai"
	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/components/model"
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

type setup struct {
	session  *palimpsest.Session
	provider *world.Provider
	model    string
	chat     model.ToolCallingChatModel
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
	s.chat = chat
	readLog, err := utils.InferTool("read_log", "Reads the log.", func(context.Context, struct{}) (string, error) {
		return world.Log, nil
	})
	world.Check(t, err)
	s.tools = []tool.BaseTool{readLog}
	return s
}

func (s *setup) config() *adk.ChatModelAgentConfig {
	return &adk.ChatModelAgentConfig{
		Name: "builder", Description: "Answers questions about builds.", Instruction: "Be brief.", Model: s.chat,
		ToolsConfig: adk.ToolsConfig{ToolsNodeConfig: compose.ToolsNodeConfig{Tools: s.tools}},
	}
}

func (s *setup) agent(t *testing.T) *adk.ChatModelAgent {
	t.Helper()
	agent, err := eino.NewChatModelAgent(context.Background(), s.session, s.model, s.config())
	world.Check(t, err)
	return agent
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
			s := start(t, world.Turns...)
			messages := run(t, context.Background(), s.agent(t), streams, schema.UserMessage(world.Question))
			world.Equal(t, messages[len(messages)-1].Content, world.Answer)
			s.provider.CheckTurns(t, s.model)
			world.Equal(t, world.Usages(t, s.session), 2)
			// The state of the agent keeps the complete results.
			kept := 0
			for _, message := range messages {
				kept += strings.Count(message.Content, world.Log)
			}
			world.Equal(t, kept, 3)
		})
	}
}

func TestTheConfigOfAnAgentStaysUnchanged(t *testing.T) {
	ctx := context.Background()
	s := start(t, slices.Concat(world.Turns, world.Turns)...)
	config := s.config()
	for range 2 {
		agent, err := eino.NewChatModelAgent(ctx, s.session, s.model, config)
		world.Check(t, err)
		run(t, ctx, agent, false, schema.UserMessage(world.Question))
		world.Equal(t, config.Model, s.chat)
		world.Equal(t, len(config.ToolsConfig.Tools), 1)
	}
	// With a changed config, the second agent would have the tools of the service twice.
	requests := s.provider.Requests(t, s.model)
	world.Equal(t, len(requests[3].Body), len(requests[0].Body))
	config.Model = nil
	_, err := eino.NewChatModelAgent(ctx, s.session, s.model, config)
	world.Contains(t, err.Error(), "'Model' is required", true)
}

func TestAnAgentWithoutASessionUsesThatOfTheContext(t *testing.T) {
	s := start(t, world.Turns...)
	_, err := eino.NewChatModelAgent(context.Background(), nil, s.model, s.config())
	world.Contains(t, err.Error(), "WithSession", true)
	ctx := eino.WithSession(context.Background(), s.session)
	agent, err := eino.NewChatModelAgent(ctx, nil, s.model, s.config())
	world.Check(t, err)
	messages := run(t, ctx, agent, false, schema.UserMessage(world.Question))
	world.Equal(t, messages[len(messages)-1].Content, world.Answer)
	s.provider.CheckTurns(t, s.model)
}

func TestAnAgentWithoutTheToolsOfTheService(t *testing.T) {
	ctx := context.Background()
	s := start(t, object{"text": world.Answer})
	config := s.config()
	// Without a session, the creation of the agent can make no call.
	config.Model = eino.NewModel(s.chat, s.model, nil)
	agent, err := adk.NewChatModelAgent(ctx, config)
	world.Check(t, err)
	messages := run(t, eino.WithSession(ctx, s.session), agent, false, schema.UserMessage(world.Question))
	world.Equal(t, messages[len(messages)-1].Content, world.Answer)
	world.Contains(t, string(s.provider.Requests(t, s.model)[0].Body), "SearchTranscript", false)
	info, err := s.session.Get(ctx)
	world.Check(t, err)
	world.Equal(t, info.Counts["messages"], 1)
}

func TestAReActAgent(t *testing.T) {
	ctx := context.Background()
	build := func(t *testing.T, s *setup) *react.Agent {
		tools, err := eino.Tools(ctx, s.session)
		world.Check(t, err)
		agent, err := react.NewAgent(ctx, &react.AgentConfig{
			ToolCallingModel: eino.NewModel(s.chat, s.model, s.session),
			ToolsConfig:      compose.ToolsNodeConfig{Tools: append(tools, s.tools...)},
		})
		world.Check(t, err)
		return agent
	}
	t.Run("generate", func(t *testing.T) {
		s := start(t, world.Turns...)
		message, err := build(t, s).Generate(ctx, []*schema.Message{schema.UserMessage(world.Question)})
		world.Check(t, err)
		world.Equal(t, message.Content, world.Answer)
		s.provider.CheckTurns(t, s.model)
	})
	t.Run("stream", func(t *testing.T) {
		turns := slices.Clone(world.Turns)
		// A text before the calls of a stream is the answer for this agent.
		turns[0] = object{"calls": []object{world.Call, world.Call}}
		s := start(t, turns...)
		stream, err := build(t, s).Stream(ctx, []*schema.Message{schema.UserMessage(world.Question)})
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
		world.Equal(t, text.String(), world.Answer)
		s.provider.CheckTurns(t, s.model)
	})
}

// The events of parallel tools come in the order in which the tools finish.
func TestResultsInAnotherOrderAreTheSameConversation(t *testing.T) {
	ctx := context.Background()
	s := start(t, slices.Concat(world.Turns, []object{{"text": world.Answer}})...)
	agent := s.agent(t)
	conversation := []adk.Message{schema.UserMessage(world.Question)}
	conversation = append(conversation, run(t, ctx, agent, false, conversation...)...)
	var finished []adk.Message
	for index, message := range conversation {
		if message.Role == schema.Tool && conversation[index-1].Role == schema.Tool {
			finished = slices.Insert(finished, len(finished)-1, message)
		} else {
			finished = append(finished, message)
		}
	}
	run(t, ctx, agent, false, append(finished, schema.UserMessage("And now?"))...)
	var sent [][]string
	for _, request := range s.provider.Requests(t, s.model) {
		var body struct{ Messages []json.RawMessage }
		world.Check(t, json.Unmarshal(request.Body, &body))
		var messages []string
		for _, message := range body.Messages {
			messages = append(messages, string(message))
		}
		sent = append(sent, messages)
	}
	last := sent[len(sent)-2]
	world.Equal(t, fmt.Sprint(sent[len(sent)-1][:len(last)]), fmt.Sprint(last))
}

func TestACompactionIsUndone(t *testing.T) {
	ctx := context.Background()
	s := start(t, object{"text": world.Answer}, object{"text": world.Answer}, object{"text": world.Answer})
	var conversation []adk.Message
	for number := range 12 {
		text := fmt.Sprint(number, strings.Repeat(" a sentence of some words.", 400))
		conversation = append(conversation, schema.UserMessage(text), schema.AssistantMessage("understood "+text, nil))
	}
	conversation = append(conversation, schema.UserMessage(world.Question))
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
			s := start(t, world.Turns[0], world.Turns[1], object{"fault": object{"html": 413}}, object{"text": world.Answer})
			messages := run(t, context.Background(), s.agent(t), streams, schema.UserMessage(world.Question))
			world.Equal(t, messages[len(messages)-1].Content, world.Answer)
			requests := s.provider.Requests(t, s.model)
			world.Equal(t, fmt.Sprint(requests[1].Status, requests[2].Status, requests[3].Status), "200 413 200")
			world.Equal(t, len(requests[3].Body) < len(requests[2].Body), true)
		})
	}
}

func TestThePromptThatCannotBeShortenedHasTheErrorOfTheProvider(t *testing.T) {
	s := start(t, object{"fault": object{"html": 413}})
	chat := eino.NewModel(s.chat, s.model, s.session)
	_, err := chat.Generate(context.Background(), []*schema.Message{schema.UserMessage(world.Question)})
	world.Contains(t, err.Error(), "413", true)
	var failed *palimpsest.Error
	world.Equal(t, errors.As(err, &failed), true)
	world.Equal(t, failed.Reason, "PROMPT_TOO_LONG")
	world.Equal(t, len(s.provider.Requests(t, s.model)), 1)
}

func TestEachRunHasTheSessionOfItsContext(t *testing.T) {
	s := start(t, slices.Concat(world.Turns, world.Turns)...)
	agent := s.agent(t)
	client := s.session
	run(t, context.Background(), agent, false, schema.UserMessage(world.Question))
	server := world.StartServer(t)
	other := server.Session(t)
	ctx := eino.WithSession(context.Background(), other)
	messages := run(t, ctx, agent, false, schema.UserMessage(world.Question))
	world.Equal(t, messages[len(messages)-1].Content, world.Answer)
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
	chat := eino.NewModel(s.chat, s.model, s.session)
	_, err := chat.Generate(context.Background(), []*schema.Message{schema.UserMessage(world.Question), open})
	var failed *palimpsest.NotSendableError
	world.Equal(t, errors.As(err, &failed), true)
	world.Equal(t, failed.Reason, "open_calls")
}
