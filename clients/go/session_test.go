package palimpsest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	palimpsest "github.com/palimpsest-dev/palimpsest/clients/go"
	"github.com/palimpsest-dev/palimpsest/clients/go/internal/world"
)

type object = world.Object

func message(role string, content any) object { return object{"role": role, "content": content} }

// readLog is the definition of the agent's tool.
var readLog = object{"name": "read_log", "input_schema": object{"type": "object"}}

func body(messages ...object) object {
	return object{"model": "claude-fake", "max_tokens": 100, "messages": messages, "tools": []object{readLog}}
}

// collect returns all values of an iterator.
func collect[T any](t *testing.T, values iter.Seq2[T, error]) []T {
	t.Helper()
	var all []T
	for value, err := range values {
		world.Check(t, err)
		all = append(all, value)
	}
	return all
}

// texts returns the messages of a view as text.
func texts(view *palimpsest.View) string { return fmt.Sprintf("%s", view.Messages) }

func TestALargeResultIsReplacedAndReadBack(t *testing.T) {
	ctx := context.Background()
	session := world.StartServer(t).Session(t, palimpsest.WithFormat(palimpsest.AnthropicMessages))
	conversation := []object{message("user", "Why did the build fail?")}
	view, err := session.Sync(ctx, body(conversation...))
	world.Check(t, err)
	world.Equal(t, view.Outcome, "new")
	world.Equal(t, view.Session, session.Name())

	response := object{
		"id": "msg_1", "role": "assistant", "stop_reason": "tool_use", "model": "claude-fake",
		"usage":   object{"input_tokens": 700, "output_tokens": 30},
		"content": []object{{"type": "tool_use", "id": "c1", "name": "read_log", "input": object{}}},
	}
	functions := palimpsest.Functions{"read_log": func(context.Context, json.RawMessage) (any, error) {
		return world.Log, nil
	}}
	isFinal, err := palimpsest.Answer(ctx, session, response, &conversation, functions)
	world.Check(t, err)
	world.Equal(t, isFinal, false)
	world.Equal(t, len(conversation), 3)

	// The second reply is a delta, and the view is whole.
	view, err = session.Sync(ctx, body(conversation...))
	world.Check(t, err)
	world.Equal(t, view.Outcome, "extended")
	world.Equal(t, view.KeepMessages, 1)
	world.Equal(t, len(view.Messages), 3)
	world.Contains(t, texts(view), "palimpsest://", true)
	world.Contains(t, texts(view), "disk full", false)
	world.Equal(t, view.Tokens.Method, "reported_and_estimated")

	tools, err := session.Tools(ctx, palimpsest.AnthropicMessages)
	world.Check(t, err)
	world.Contains(t, string(tools[0].Definition), "input_schema", true)
	call := object{"type": "tool_use", "id": "c2", "name": "SearchTranscript", "input": object{"pattern": "disk full"}}
	world.Equal(t, session.IsOwn(call), true)
	world.Equal(t, session.IsOwn(response["content"].([]object)[0]), false)
	result, err := session.RunTool(ctx, call)
	world.Check(t, err)
	world.Contains(t, string(result), "disk full", true)
	world.Contains(t, string(result), `"tool_use_id":"c2"`, true)
}

func TestEachWarningOfASessionIsLoggedOnce(t *testing.T) {
	var logged bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&logged, nil))
	client := world.StartServer(t).Client(palimpsest.WithLogger(logger))
	for range 3 {
		view, err := client.Session("demo", "warned").Sync(context.Background(), body(message("user", "Hello.")))
		world.Check(t, err)
		world.Equal(t, view.Warnings[0].Code, "window_assumed")
	}
	world.Equal(t, strings.Count(logged.String(), "\n"), 1)
	world.Contains(t, logged.String(), "code=window_assumed session=projects/demo/sessions/warned", true)
}

func TestAViewDecodesIntoAnotherValue(t *testing.T) {
	session := world.StartServer(t).Session(t, palimpsest.WithFormat(palimpsest.AnthropicMessages))
	given := body(message("user", "a <b> & c"))
	given["system"] = "Be brief."
	view, err := session.Sync(context.Background(), given, palimpsest.WithCacheBreakpoints())
	world.Check(t, err)
	var request object
	world.Check(t, view.Decode(&request))
	world.Equal(t, request["max_tokens"], any(100.0))
	sent := fmt.Sprint(request)
	world.Contains(t, sent, "a <b> & c", true)
	world.Contains(t, sent, "cache_control", true)
	world.Equal(t, fmt.Sprint(given["messages"]), fmt.Sprint([]object{message("user", "a <b> & c")}))
}

func TestSystemMessagesPrecedeADelta(t *testing.T) {
	ctx := context.Background()
	session := world.StartServer(t).Session(t, palimpsest.WithFormat(palimpsest.OpenAIChat))
	tool := object{"type": "function", "function": object{"name": "read_log", "parameters": object{"type": "object"}}}
	conversation := []object{message("system", "Be brief."), message("user", "one")}
	for index, text := range []string{"two", "three", "four"} {
		view, err := session.Sync(ctx, object{"model": "gpt-fake", "messages": conversation, "tools": []object{tool}})
		world.Check(t, err)
		world.Equal(t, len(view.Messages), len(conversation))
		world.Equal(t, view.KeepMessages > 0, index > 0)
		world.Contains(t, string(view.Messages[0]), "Be brief.", true)

		// A side request has a lane, and its view does not replace that of the conversation.
		title := []object{message("system", "Write a title."), message("user", "Title "+text)}
		side, err := session.Sync(ctx, object{"model": "gpt-fake", "messages": title})
		world.Check(t, err)
		world.Equal(t, side.Session == session.Name(), false)
		world.Equal(t, len(side.Messages), 2)

		conversation = append(conversation, message("assistant", "yes"), message("user", text))
		view, err = session.Sync(ctx, object{"model": "gpt-fake", "messages": conversation, "tools": []object{tool}})
		world.Check(t, err)
		world.Equal(t, view.Session, session.Name())
		world.Equal(t, len(view.Messages), len(conversation))
		world.Contains(t, string(view.Messages[len(view.Messages)-1]), text, true)
	}
}

func TestALargeViewIsStreamed(t *testing.T) {
	ctx := context.Background()
	session := world.StartServer(t).Session(t, palimpsest.WithFormat(palimpsest.OpenAIChat))
	limits := object{"limits": object{"max_reply_bytes": 65_536}}
	_, err := session.Create(ctx, object{"policy_overrides": limits})
	world.Check(t, err)
	conversation := []object{message("system", "Be brief.")}
	for range 3 {
		for range 10 {
			conversation = append(conversation, message("user", strings.Repeat("x", 10_000)), message("assistant", "yes"))
		}
		conversation = append(conversation, message("user", "more"))
		view, err := session.Sync(ctx, object{"model": "gpt-fake", "messages": conversation})
		world.Check(t, err)
		world.Equal(t, view.ViewOmitted, true)
		world.Equal(t, len(view.Messages), len(conversation))
	}
}

func TestAnArrayThatIsNotSendable(t *testing.T) {
	session := world.StartServer(t).Session(t, palimpsest.WithFormat(palimpsest.AnthropicMessages))
	call := []object{{"type": "tool_use", "id": "c1", "name": "read_log", "input": object{}}}
	view, err := session.Sync(context.Background(), body(message("user", "Go."), message("assistant", call)))
	world.Check(t, err)
	world.Equal(t, view.Sendable, false)
	_, err = view.Request()
	if failed, ok := err.(*palimpsest.NotSendableError); !ok || failed.Reason != "open_calls" {
		t.Fatal(err)
	}
}

// conversationOf returns a conversation that a compaction can shorten.
func conversationOf(rounds int) []object {
	var conversation []object
	for number := range rounds {
		text := fmt.Sprintf("%d: %s", number, strings.Repeat("a sentence of some words. ", 400))
		conversation = append(conversation, message("user", text), message("assistant", "understood "+text))
	}
	return append(conversation, message("user", "Continue."))
}

func TestACompactionIsUndone(t *testing.T) {
	ctx := context.Background()
	server := world.StartServer(t)
	session := server.Session(t, palimpsest.WithFormat(palimpsest.AnthropicMessages))
	conversation := conversationOf(12)
	before, err := session.Sync(ctx, body(conversation...))
	world.Check(t, err)
	compaction, err := session.Compact(ctx, object{"strategy": "extractive"})
	world.Check(t, err)
	world.Equal(t, compaction.Compaction.State, "succeeded")
	after, err := session.Sync(ctx, body(conversation...))
	world.Check(t, err)
	world.Equal(t, len(after.Messages) < len(before.Messages), true)

	restored, err := session.Undo(ctx)
	world.Check(t, err)
	world.Equal(t, restored.Restored.Undone[0].Kind, "compacted")
	undone, err := session.Sync(ctx, body(conversation...))
	world.Check(t, err)
	world.Equal(t, texts(undone), texts(before))
	restored, err = session.Undo(ctx)
	world.Check(t, err)
	world.Equal(t, restored == nil, true)
}

func TestAnUndoCanExceedTheLimitOfARequest(t *testing.T) {
	ctx := context.Background()
	session := world.StartServer(t).Session(t, palimpsest.WithFormat(palimpsest.AnthropicMessages))
	target := palimpsest.WithParameter("target", object{"window_tokens": 32_000, "max_output_tokens": 2_000})
	_, err := session.Sync(ctx, body(conversationOf(12)...), target)
	world.Check(t, err)
	_, err = session.Undo(ctx)
	world.Contains(t, err.Error(), "RESTORE_OVER_BLOCK", true)
	restored, err := session.Undo(ctx, palimpsest.WithForce())
	world.Check(t, err)
	world.Equal(t, restored.Restored.Undone[0].Kind, "compacted")
}

func TestSessionsAreReadAndChanged(t *testing.T) {
	ctx := context.Background()
	server := world.StartServer(t)
	session := server.Session(t, palimpsest.WithFormat(palimpsest.AnthropicMessages))
	conversation := conversationOf(3)
	_, err := session.Sync(ctx, body(conversation...))
	world.Check(t, err)
	info, err := session.Update(ctx, object{"title": "A title"})
	world.Check(t, err)
	world.Equal(t, info.Title, "A title")
	info, err = session.Get(ctx)
	world.Check(t, err)
	world.Equal(t, info.Counts["messages"], 7)
	world.Contains(t, info.RawJSON(), `"policy"`, true)

	paged := url.Values{"page_size": {"2"}, "format": {"anthropic_messages"}}
	messages := collect(t, session.Messages(ctx, paged))
	world.Equal(t, len(messages), len(conversation))
	world.Equal(t, messages[6].Ordinal, 7)
	world.Contains(t, string(messages[6].Messages[0]), "Continue.", true)
	world.Equal(t, len(collect(t, session.Search(ctx, "understood"))), 3)
	world.Equal(t, collect(t, session.SearchRegexp(ctx, "Cont[a-z]+e"))[0].Ordinal, 7)
	world.Equal(t, collect(t, session.Events(ctx))[0].Kind, "session_created")
	world.Equal(t, len(collect(t, session.Events(ctx, "messages_appended"))), 1)
	memory, err := session.Memory(ctx)
	world.Check(t, err)
	world.Equal(t, memory.State != "", true)
	for info, err := range server.Client().Sessions(ctx, "demo", url.Values{"page_size": {"1"}}) {
		world.Check(t, err)
		world.Equal(t, info.Name, session.Name())
	}

	world.Check(t, session.Delete(ctx))
	world.Check(t, session.Delete(ctx))
	world.Equal(t, len(collect(t, server.Client().Sessions(ctx, "demo", nil))), 0)
}

func TestNamesCanHavePunctuation(t *testing.T) {
	session := world.StartServer(t).Client().Session("demo", "a.b-c_d")
	view, err := session.Sync(context.Background(), body(message("user", "Hello.")))
	world.Check(t, err)
	world.Equal(t, view.Session, session.Name())
}

func TestInvalidIdsAreRejectedBeforeACall(t *testing.T) {
	ctx := context.Background()
	requests := &counter{}
	client := world.StartServer(t).Client(palimpsest.WithHTTPClient(&http.Client{Transport: requests}))
	for _, id := range []string{"", ".", "..", "a/b", "a b", "-a", "Ä", "a\n", strings.Repeat("a", 129)} {
		for kind, session := range map[string]*palimpsest.Session{
			"of a session is invalid: use at most 128": client.Session("demo", id),
			"of a project is invalid: use at most 64":  client.Session(id, "a"),
		} {
			_, err := session.Get(ctx)
			world.Equal(t, errors.Is(err, palimpsest.InvalidArgument), true)
			world.Contains(t, err.Error(), fmt.Sprintf("the id %q %s letters, digits", id, kind), true)
			_, err = session.Sync(ctx, body(message("user", "Hello.")))
			world.Equal(t, errors.Is(err, palimpsest.InvalidArgument), true)
			world.Equal(t, errors.Is(session.Delete(ctx), palimpsest.InvalidArgument), true)
		}
		for _, err := range client.Sessions(ctx, id, nil) {
			world.Equal(t, errors.Is(err, palimpsest.InvalidArgument), true)
		}
	}
	world.Equal(t, requests.count.Load(), 0)
	longest := client.Session(strings.Repeat("a", 64), "0-_."+strings.Repeat("Z", 124))
	_, err := longest.Get(ctx)
	world.Contains(t, err.Error(), "SESSION_NOT_FOUND", true)
}

func TestALateSyncDoesNotChangeTheNextView(t *testing.T) {
	ctx := context.Background()
	client := world.StartServer(t).Client()
	session := client.Session("demo", "a", palimpsest.WithFormat(palimpsest.AnthropicMessages))
	first := conversationOf(2)
	second := append(slices.Clone(first), message("assistant", "yes"), message("user", "one more"))
	third := append(slices.Clone(second), message("assistant", "yes"), message("user", "the last one"))
	for _, conversation := range [][]object{first, second} {
		_, err := session.Sync(ctx, body(conversation...))
		world.Check(t, err)
	}
	// A canceled sync can reach the server after a later one. Its reply reaches nobody.
	late := client.Session("demo", "a", palimpsest.WithFormat(palimpsest.AnthropicMessages))
	_, err := late.Sync(ctx, body(first...))
	world.Check(t, err)
	view, err := session.Sync(ctx, body(third...))
	world.Check(t, err)
	world.Equal(t, view.Session, session.Name())
	world.Equal(t, len(view.Messages), len(third))
	world.Contains(t, texts(view), "one more", true)
	world.Contains(t, string(view.Messages[len(third)-1]), "the last one", true)
}

func TestAViewThatIsNotStreamedEndsAtTheDeadline(t *testing.T) {
	server := world.StartServer(t)
	ctx := context.Background()
	limits := object{"limits": object{"max_reply_bytes": 65_536}}
	_, err := server.Client().Session("demo", "a").Create(ctx, object{"policy_overrides": limits})
	world.Check(t, err)
	client := server.Client(palimpsest.WithHTTPClient(&http.Client{Transport: noStream{}}), palimpsest.WithTimeout(2*time.Second))
	session := client.Session("demo", "a", palimpsest.WithFormat(palimpsest.AnthropicMessages))
	_, err = session.Sync(ctx, body(message("user", strings.Repeat("x ", 100_000))))
	world.Equal(t, errors.Is(err, palimpsest.DeadlineExceeded), true)
}

// noStream never answers the request for a streamed view.
type noStream struct{}

func (noStream) RoundTrip(request *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(request.URL.Path, ":stream") {
		return http.DefaultTransport.RoundTrip(request)
	}
	<-request.Context().Done()
	return nil, request.Context().Err()
}

func TestTheStreamOfAViewHasTheOtherAttemptsOfTheSync(t *testing.T) {
	server := world.StartServer(t)
	ctx := context.Background()
	limits := object{"limits": object{"max_reply_bytes": 65_536}}
	_, err := server.Client().Session("demo", "a").Create(ctx, object{"policy_overrides": limits})
	world.Check(t, err)
	transport := &brokenStream{pause: 100 * time.Millisecond}
	client := server.Client(palimpsest.WithHTTPClient(&http.Client{Transport: transport}))
	session := client.Session("demo", "a", palimpsest.WithFormat(palimpsest.AnthropicMessages))
	conversation := body(message("user", strings.Repeat("x ", 100_000)))
	view, err := session.Sync(ctx, conversation)
	world.Check(t, err)
	world.Equal(t, len(view.Messages), 1)
	// The first stream has no status of success, the second one no lines, and the third one is whole.
	world.Equal(t, len(transport.timeouts), 4)
	for index, timeout := range transport.timeouts[1:] {
		// Each request of the sync has the rest of its deadline.
		world.Equal(t, timeout <= transport.timeouts[index]-100, true)
	}
	transport.timeouts = nil
	once := server.Client(palimpsest.WithHTTPClient(&http.Client{Transport: transport}), palimpsest.WithMaxRetries(1))
	_, err = once.Session("demo", "a").Sync(ctx, conversation)
	world.Equal(t, errors.Is(err, palimpsest.Unavailable), true)
	world.Equal(t, len(transport.timeouts), 3)
}

// brokenStream fails the first two streams. It pauses after each request, and records its timeout in milliseconds.
type brokenStream struct {
	pause    time.Duration
	timeouts []int
}

func (b *brokenStream) RoundTrip(request *http.Request) (*http.Response, error) {
	timeout, err := strconv.Atoi(request.Header.Get("Connect-Timeout-Ms"))
	if err != nil {
		return nil, err
	}
	b.timeouts = append(b.timeouts, timeout)
	response, err := http.DefaultTransport.RoundTrip(request)
	time.Sleep(b.pause)
	switch {
	case err != nil || len(b.timeouts) == 1 || len(b.timeouts) > 3:
		return response, err
	case len(b.timeouts) == 2:
		response.StatusCode = http.StatusServiceUnavailable
	}
	_ = response.Body.Close()
	response.Body = http.NoBody
	return response, nil
}

func TestAnInputThatIsText(t *testing.T) {
	session := world.StartServer(t).Session(t)
	view, err := session.Sync(context.Background(), object{"model": "gpt-fake", "input": "Hello."})
	world.Check(t, err)
	request, err := view.Request()
	world.Check(t, err)
	world.Contains(t, string(request), "Hello.", true)
	world.Equal(t, len(view.Messages), 1)
}

func TestAnEventThatAStreamRepeatsIsYieldedOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	server := world.StartServer(t)
	// Each connection of the watch ends after a line, so that the watch resumes after each element.
	short := server.Client(palimpsest.WithHTTPClient(&http.Client{Transport: oneLine{}}), palimpsest.WithMaxRetries(100))
	session := short.Session("demo", world.NameOf(t))
	_, err := session.Sync(ctx, body(message("user", "one")))
	world.Check(t, err)
	_, err = session.Update(ctx, object{"title": "A title"})
	world.Check(t, err)
	var watched, recorded []string
	for event, err := range session.Events(ctx) {
		world.Check(t, err)
		recorded = append(recorded, fmt.Sprint(event.Revision, event.Kind))
	}
	for event, err := range session.Watch(ctx, 0) {
		world.Check(t, err)
		watched = append(watched, fmt.Sprint(event.Revision, event.Kind))
		if event.Kind == "session_updated" {
			break
		}
	}
	world.Equal(t, fmt.Sprint(watched), fmt.Sprint(recorded))
}

// oneLine ends the body of each watch after its first line.
type oneLine struct{}

func (oneLine) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil || !strings.HasSuffix(request.URL.Path, ":watch") {
		return response, err
	}
	line, err := bufio.NewReader(response.Body).ReadBytes('\n')
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(line))
	return response, err
}
