package sdktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	palimpsest "github.com/palimpsest-dev/palimpsest/clients/go"
	"github.com/palimpsest-dev/palimpsest/clients/go/internal/world"
)

type object = world.Object

var (
	ctx       = context.Background()
	functions = palimpsest.Functions{"read_log": func(context.Context, json.RawMessage) (any, error) {
		return world.Log, nil
	}}
	claudeTool  = anthropic.ToolUnionParam{OfTool: &anthropic.ToolParam{Name: "read_log", InputSchema: emptySchema}}
	emptySchema = anthropic.ToolInputSchemaParam{Properties: object{}}
	parameters  = object{"type": "object"}
)

// setup is a session, and a provider with a script for a model.
type setup struct {
	session  *palimpsest.Session
	provider *world.Provider
	model    string
}

func start(t *testing.T, script ...object) *setup {
	t.Helper()
	s := &setup{world.StartServer(t).Session(t), world.StartProvider(t), "fake-" + world.NameOf(t)}
	if len(script) > 0 {
		s.provider.Script(t, s.model, script...)
	}
	return s
}

func (s *setup) claude(options ...palimpsest.SyncOption) anthropic.Client {
	middleware := anthropicoption.WithMiddleware(s.session.Middleware(options...))
	return anthropic.NewClient(anthropicoption.WithBaseURL(s.provider.URL), anthropicoption.WithAPIKey("key"), middleware)
}

func (s *setup) gpt(options ...palimpsest.SyncOption) openai.Client {
	middleware := option.WithMiddleware(s.session.Middleware(options...))
	return openai.NewClient(option.WithBaseURL(s.provider.URL+"/v1"), option.WithAPIKey("key"), middleware)
}

func (s *setup) messages() anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: anthropic.Model(s.model), MaxTokens: 2_000, Tools: []anthropic.ToolUnionParam{claudeTool},
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(world.Question))},
	}
}

// check checks the requests of a run and the conversation of the agent.
func (s *setup) check(t *testing.T, conversation any) {
	t.Helper()
	s.provider.CheckTurns(t, s.model)
	kept, err := json.Marshal(conversation)
	world.Check(t, err)
	world.Equal(t, strings.Count(string(kept), `nothing was wrong\ndisk full`), 3)
	world.Contains(t, string(kept), world.Answer, true)
	// The usage of each response is sent with the next sync.
	world.Equal(t, world.Usages(t, s.session), 2)
}

func TestMessages(t *testing.T) {
	s := start(t, world.Turns...)
	client, params := s.claude(palimpsest.WithCacheBreakpoints()), s.messages()
	response, err := palimpsest.Run(ctx, s.session, &params.Messages, functions,
		func(ctx context.Context) (*anthropic.Message, error) { return client.Messages.New(ctx, params) })
	world.Check(t, err)
	world.Equal(t, response.Content[0].Text, world.Answer)
	s.check(t, params.Messages)
	world.Contains(t, string(s.provider.Requests(t, s.model)[2].Body), "cache_control", true)
}

func TestStreamsOfMessages(t *testing.T) {
	s := start(t, world.Turns...)
	client, params := s.claude(), s.messages()
	for isFinal := false; !isFinal; {
		stream := client.Messages.NewStreaming(ctx, params)
		var message anthropic.Message
		for stream.Next() {
			world.Check(t, message.Accumulate(stream.Current()))
		}
		world.Check(t, stream.Err())
		var err error
		isFinal, err = palimpsest.Answer(ctx, s.session, message, &params.Messages, functions)
		world.Check(t, err)
	}
	s.check(t, params.Messages)
}

func TestThinkingIsKept(t *testing.T) {
	s := start(t, object{"thinking": "Hm.", "calls": []object{world.Call}}, object{"text": world.Answer})
	client, params := s.claude(), s.messages()
	params.Thinking = anthropic.ThinkingConfigParamOfEnabled(1_024)
	_, err := palimpsest.Run(ctx, s.session, &params.Messages, functions,
		func(ctx context.Context) (*anthropic.Message, error) { return client.Messages.New(ctx, params) })
	world.Check(t, err)
	world.Contains(t, string(s.provider.Requests(t, s.model)[1].Body), `"thinking":"Hm."`, true)
}

func (s *setup) completion() openai.ChatCompletionNewParams {
	function := openai.FunctionDefinitionParam{Name: "read_log", Parameters: parameters}
	return openai.ChatCompletionNewParams{
		Model: s.model,
		Messages: []openai.ChatCompletionMessageParamUnion{
			openai.SystemMessage("Be brief."), openai.UserMessage(world.Question),
		},
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(function)},
	}
}

func TestChatCompletions(t *testing.T) {
	s := start(t, world.Turns...)
	client, params := s.gpt(), s.completion()
	response, err := palimpsest.Run(ctx, s.session, &params.Messages, functions,
		func(ctx context.Context) (*openai.ChatCompletion, error) {
			return client.Chat.Completions.New(ctx, params)
		})
	world.Check(t, err)
	world.Equal(t, response.Choices[0].Message.Content, world.Answer)
	s.check(t, params.Messages)
}

func TestStreamsOfChatCompletions(t *testing.T) {
	s := start(t, world.Turns...)
	client, params := s.gpt(), s.completion()
	params.StreamOptions.IncludeUsage = openai.Bool(true)
	for isFinal := false; !isFinal; {
		stream := client.Chat.Completions.NewStreaming(ctx, params)
		var accumulator openai.ChatCompletionAccumulator
		for stream.Next() {
			world.Equal(t, accumulator.AddChunk(stream.Current()), true)
		}
		world.Check(t, stream.Err())
		var err error
		isFinal, err = palimpsest.Answer(ctx, s.session, accumulator.ChatCompletion, &params.Messages, functions)
		world.Check(t, err)
	}
	s.check(t, params.Messages)
}

func (s *setup) response() responses.ResponseNewParams {
	tool := responses.ToolParamOfFunction("read_log", parameters, false)
	input := responses.ResponseInputParam{
		responses.ResponseInputItemParamOfMessage(world.Question, responses.EasyInputMessageRoleUser),
	}
	return responses.ResponseNewParams{
		Model: s.model,
		Input: responses.ResponseNewParamsInputUnion{OfInputItemList: input},
		Tools: []responses.ToolUnionParam{tool},
	}
}

func TestResponses(t *testing.T) {
	s := start(t, world.Turns...)
	client, params := s.gpt(), s.response()
	response, err := palimpsest.Run(ctx, s.session, &params.Input.OfInputItemList, functions,
		func(ctx context.Context) (*responses.Response, error) { return client.Responses.New(ctx, params) })
	world.Check(t, err)
	world.Equal(t, response.OutputText(), world.Answer)
	s.check(t, params.Input.OfInputItemList)
}

func TestStreamsOfResponses(t *testing.T) {
	s := start(t, world.Turns...)
	client, params := s.gpt(), s.response()
	for isFinal := false; !isFinal; {
		stream := client.Responses.NewStreaming(ctx, params)
		var response responses.Response
		for stream.Next() {
			if event := stream.Current(); event.Type == "response.completed" {
				response = event.Response
			}
		}
		world.Check(t, stream.Err())
		var err error
		isFinal, err = palimpsest.Answer(ctx, s.session, response, &params.Input.OfInputItemList, functions)
		world.Check(t, err)
	}
	s.check(t, params.Input.OfInputItemList)
}

func TestAPromptThatIsTooLongIsShortenedOnce(t *testing.T) {
	s := start(t, world.Turns[0], world.Turns[1], object{"fault": object{"html": 413}}, object{"text": world.Answer})
	client, params := s.claude(), s.messages()
	response, err := palimpsest.Run(ctx, s.session, &params.Messages, functions,
		func(ctx context.Context) (*anthropic.Message, error) { return client.Messages.New(ctx, params) })
	world.Check(t, err)
	world.Equal(t, response.Content[0].Text, world.Answer)
	requests := s.provider.Requests(t, s.model)
	world.Equal(t, fmt.Sprint(requests[1].Status, requests[2].Status, requests[3].Status), "200 413 200")
	world.Equal(t, len(requests[3].Body) < len(requests[2].Body), true)
}

func TestThePromptThatCannotBeShortenedHasTheErrorOfTheProvider(t *testing.T) {
	s := start(t)
	s.model += "+ptl=anthropic-output"
	client, params := s.claude(), s.messages()
	_, err := client.Messages.New(ctx, params)
	var rejected *anthropic.Error
	world.Equal(t, errors.As(err, &rejected), true)
	world.Equal(t, rejected.StatusCode, 400)
	world.Contains(t, err.Error(), "max_tokens` exceed context limit", true)
	world.Equal(t, len(s.provider.Requests(t, s.model)), 1)
}

func TestAnArrayThatIsNotSendableIsNotSent(t *testing.T) {
	s := start(t)
	client, params := s.claude(), s.messages()
	params.Messages = append(params.Messages, anthropic.NewAssistantMessage(anthropic.NewToolUseBlock("c1", object{}, "read_log")))
	_, err := client.Messages.New(ctx, params)
	var failed *palimpsest.NotSendableError
	world.Equal(t, errors.As(err, &failed), true)
	world.Equal(t, failed.Reason, "open_calls")
	world.Equal(t, len(s.provider.Requests(t, s.model)), 0)
}

// counter counts the requests of a client.
type counter int

func (c *counter) RoundTrip(request *http.Request) (*http.Response, error) {
	*c++
	return http.DefaultTransport.RoundTrip(request)
}

func TestTheSDKDoesNotRepeatAFailedSync(t *testing.T) {
	s := start(t)
	var requests counter
	client := palimpsest.NewClient(palimpsest.WithURL(s.provider.URL), palimpsest.WithHTTPClient(&http.Client{Transport: &requests}))
	s.session = client.Session("demo", "a", palimpsest.WithoutReadBack())
	claude := s.claude()
	_, err := claude.Messages.New(ctx, s.messages())
	var failed *palimpsest.Error
	if !errors.As(err, &failed) || failed.Retryable() {
		t.Fatal(err)
	}
	world.Equal(t, requests, 1)
	gpt := s.gpt()
	_, err = gpt.Chat.Completions.New(ctx, s.completion())
	world.Equal(t, errors.As(err, &failed), true)
	world.Equal(t, requests, 2)
}

func TestOtherFailuresOfTheProviderReachTheCaller(t *testing.T) {
	s := start(t, object{"fault": object{"html": 400}})
	claude := s.claude(palimpsest.WithoutReadBack())
	_, err := claude.Messages.New(ctx, s.messages())
	var failed *anthropic.Error
	world.Equal(t, errors.As(err, &failed), true)
	world.Equal(t, failed.StatusCode, 400)
	world.Contains(t, string(s.provider.Requests(t, s.model)[0].Body), "SearchTranscript", false)
}

func TestErrorsOfFunctionsReachTheModel(t *testing.T) {
	s := start(t, object{"calls": []object{world.Call, world.Call}}, object{"text": world.Answer})
	client, params := s.claude(), s.messages()
	failing := palimpsest.Functions{"read_log": func(context.Context, json.RawMessage) (any, error) {
		return nil, errors.New("no such file")
	}}
	_, err := palimpsest.Run(ctx, s.session, &params.Messages, failing,
		func(ctx context.Context) (*anthropic.Message, error) { return client.Messages.New(ctx, params) })
	world.Check(t, err)
	world.Contains(t, string(s.provider.Requests(t, s.model)[1].Body), "no such file", true)
	world.Contains(t, string(s.provider.Requests(t, s.model)[1].Body), `"is_error":true`, true)
}

func TestATransportForOtherLibraries(t *testing.T) {
	s := start(t, object{"text": world.Answer})
	client := openai.NewClient(option.WithBaseURL(s.provider.URL+"/v1"), option.WithAPIKey("key"),
		option.WithHTTPClient(&http.Client{Transport: s.session.Transport(nil)}))
	response, err := client.Chat.Completions.New(ctx, s.completion())
	world.Check(t, err)
	world.Equal(t, response.Choices[0].Message.Content, world.Answer)
	world.Contains(t, string(s.provider.Requests(t, s.model)[0].Body), "SearchTranscript", true)
	if _, err := client.Models.List(ctx); err != nil {
		t.Log(err) // The provider need not have this path: it only passes.
	}
}

func TestACompactionIsUndoneInRequests(t *testing.T) {
	s := start(t, object{"text": world.Answer}, object{"text": world.Answer}, object{"text": world.Answer})
	client, params := s.claude(), s.messages()
	for number := range 12 {
		text := fmt.Sprint(number, strings.Repeat(" a sentence of some words.", 400))
		params.Messages = append(params.Messages, anthropic.NewAssistantMessage(anthropic.NewTextBlock(text)),
			anthropic.NewUserMessage(anthropic.NewTextBlock("more "+text)))
	}
	ask := func() int {
		_, err := client.Messages.New(ctx, params)
		world.Check(t, err)
		requests := s.provider.Requests(t, s.model)
		return len(requests[len(requests)-1].Body)
	}
	before := ask()
	_, err := s.session.Compact(ctx, object{"strategy": "extractive"})
	world.Check(t, err)
	world.Equal(t, ask() < before/2, true)
	_, err = s.session.Undo(ctx)
	world.Check(t, err)
	world.Equal(t, ask(), before)
}

func TestParametersOfTheSDKsAreDecodedFromAView(t *testing.T) {
	s := start(t, object{"text": world.Answer})
	view, err := s.session.Sync(ctx, s.messages(), palimpsest.WithFormat(palimpsest.AnthropicMessages))
	world.Check(t, err)
	var params anthropic.MessageNewParams
	world.Check(t, view.Decode(&params))
	client := anthropic.NewClient(anthropicoption.WithBaseURL(s.provider.URL), anthropicoption.WithAPIKey("key"))
	response, err := client.Messages.New(ctx, params)
	world.Check(t, err)
	world.Equal(t, response.Content[0].Text, world.Answer)
}
