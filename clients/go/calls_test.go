package palimpsest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"testing"

	palimpsest "github.com/palimpsest-dev/palimpsest/clients/go"
	"github.com/palimpsest-dev/palimpsest/clients/go/internal/world"
)

var chatTool = object{"type": "function", "function": object{"name": "read_log", "parameters": object{"type": "object"}}}

// readBack is a call of a tool of the service.
func readBack(id string) object {
	return object{"id": id, "type": "function", "function": object{
		"name": "SearchTranscript", "arguments": `{"pattern":"disk full"}`}}
}

// withLog returns a conversation with a large result.
func withLog() []object {
	call := object{"id": "c1", "type": "function", "function": object{"name": "read_log", "arguments": "{}"}}
	return []object{
		message("user", "Why did the build fail?"),
		{"role": "assistant", "tool_calls": []object{call}},
		{"role": "tool", "tool_call_id": "c1", "content": world.Log},
	}
}

// post sends a JSON body and returns the response.
func post(t *testing.T, client *http.Client, url string, body any) (int, []byte) {
	t.Helper()
	content, err := json.Marshal(body)
	world.Check(t, err)
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(content))
	world.Check(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer key")
	response, err := client.Do(request)
	world.Check(t, err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	world.Check(t, err)
	return response.StatusCode, data
}

func TestCallsOfParallelConversationsReadTheirOwnSessions(t *testing.T) {
	ctx := context.Background()
	server, provider := world.StartServer(t), world.StartProvider(t)
	model := "fake-" + world.NameOf(t)
	search := object{"calls": []object{{"name": "SearchTranscript", "input": object{"pattern": "disk full"}}}}
	provider.Script(t, model, search, search)
	for _, streams := range []bool{false, true} {
		t.Run(fmt.Sprintf("streams-%v", streams), func(t *testing.T) {
			session := server.Session(t, palimpsest.WithFormat(palimpsest.OpenAIChat))
			client := &http.Client{Transport: session.Transport(nil)}
			request := object{"model": model, "messages": withLog(), "tools": []object{chatTool}, "stream": streams}
			status, response := post(t, client, provider.URL+"/v1/chat/completions", request)
			world.Equal(t, status, 200)

			// A subagent has a lane.
			other := object{"model": model, "messages": []object{message("user", "Count.")}, "tools": []object{chatTool}}
			side, err := session.Sync(ctx, other)
			world.Check(t, err)
			world.Equal(t, side.Session == session.Name(), false)

			ids := regexp.MustCompile(`"id":\s*"([^"]*)",\s*"type":\s*"function"|"id":\s*"(call[^"]*)"`).FindSubmatch(response)
			if ids == nil {
				t.Fatalf("no call in %s", response)
			}
			result, err := session.RunTool(ctx, readBack(string(ids[1])+string(ids[2])))
			world.Check(t, err)
			world.Contains(t, string(result), "was wrong disk full", true)
		})
	}
}

func TestCallsAreAssignedToAView(t *testing.T) {
	ctx := context.Background()
	session := world.StartServer(t).Session(t, palimpsest.WithFormat(palimpsest.OpenAIChat))
	request := object{"model": "gpt-fake", "messages": withLog(), "tools": []object{chatTool}}
	view, err := session.Sync(ctx, request)
	world.Check(t, err)
	request["messages"] = []object{message("user", "Count.")}
	_, err = session.Sync(ctx, request)
	world.Check(t, err)
	session.AssignCalls(view, "c2")
	for id, found := range map[string]bool{"c2": true, "c3": false} {
		result, err := session.RunTool(ctx, readBack(id))
		world.Check(t, err)
		world.Contains(t, string(result), "was wrong disk full", found)
	}
}

func TestRequestsWithoutAConversationPass(t *testing.T) {
	session := world.StartServer(t).Session(t)
	var path string
	var body []byte
	client := &http.Client{Transport: session.Transport(roundTrip(func(request *http.Request) (*http.Response, error) {
		var err error
		path = request.URL.Path
		body, err = io.ReadAll(request.Body)
		return &http.Response{StatusCode: 200, Body: http.NoBody}, err
	}))}
	for name, sent := range map[string]object{
		"/v1/threads/t/messages": {"role": "user", "content": "Hello."},
		"/v1/responses":          {"model": "gpt-fake", "prompt": object{"id": "p"}},
	} {
		status, _ := post(t, client, "http://127.0.0.1"+name, sent)
		world.Equal(t, status, 200)
		world.Equal(t, path, name)
		want, err := json.Marshal(sent)
		world.Check(t, err)
		world.Equal(t, string(body), string(want))
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

func TestAnErrorOfTheServiceKeepsTheResultsOfFunctions(t *testing.T) {
	ctx := context.Background()
	session := world.StartServer(t).Session(t, palimpsest.WithFormat(palimpsest.OpenAIChat))
	_, err := session.Tools(ctx, palimpsest.OpenAIChat)
	world.Check(t, err)
	ran := 0
	functions := palimpsest.Functions{"read_log": func(context.Context, json.RawMessage) (any, error) {
		ran++
		return "the log", nil
	}}
	calls := append(withLog()[1]["tool_calls"].([]object), readBack("c2"))
	response := object{"choices": []object{{"message": object{"role": "assistant", "tool_calls": calls}}}}
	conversation := withLog()[:1]
	// No sync has created the session, so the call of its tool fails.
	_, err = palimpsest.Answer(ctx, session, response, &conversation, functions)
	world.Check(t, err)
	world.Equal(t, ran, 1)
	world.Equal(t, len(conversation), 4)
	world.Equal(t, conversation[2]["content"], any("the log"))
	world.Contains(t, fmt.Sprint(conversation[3]["content"]), "SESSION_NOT_FOUND", true)
}
