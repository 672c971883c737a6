package palimpsest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	palimpsest "github.com/palimpsest-dev/palimpsest/clients/go"
	"github.com/palimpsest-dev/palimpsest/clients/go/internal/world"
)

var hello = body(message("user", "hello"))

func TestErrorsHaveAReasonAndDetails(t *testing.T) {
	ctx := context.Background()
	session := world.StartServer(t).Session(t)
	_, err := session.Get(ctx)
	var failed *palimpsest.Error
	world.Equal(t, errors.As(err, &failed), true)
	world.Equal(t, errors.Is(err, palimpsest.NotFound), true)
	world.Equal(t, failed.Reason, "SESSION_NOT_FOUND")
	world.Equal(t, failed.Status, 404)
	world.Equal(t, failed.Metadata["session"], session.Name())
	world.Equal(t, failed.Retryable(), false)
	world.Equal(t, len(failed.Details), 2)
	world.Contains(t, err.Error(), "SESSION_NOT_FOUND: ", true)

	_, err = session.Sync(ctx, hello, palimpsest.WithParameter("nope", 1))
	world.Equal(t, errors.Is(err, palimpsest.InvalidArgument), true)
	world.Contains(t, err.Error(), "palimpsest.nope", true)
	for _, err := range session.Watch(ctx, 0) {
		world.Equal(t, errors.Is(err, palimpsest.NotFound), true)
	}
	for _, err := range session.Events(ctx) {
		world.Equal(t, errors.Is(err, palimpsest.NotFound), true)
	}
	_, err = session.Sync(ctx, object{"input": "x", "previous_response_id": "r"})
	world.Contains(t, err.Error(), "previous_response_id", true)
}

func TestKeysHaveRights(t *testing.T) {
	ctx := context.Background()
	file := filepath.Join(t.TempDir(), "keys.toml")
	key := func(right string) string {
		created, err := exec.Command(os.Getenv("PALIMPSEST_BINARY"), "keys", "create", "--keys-file", file,
			"--project", "demo", "--right", right, "--json").Output()
		world.Check(t, err)
		var parsed struct{ Key string }
		world.Check(t, json.Unmarshal(created, &parsed))
		return parsed.Key
	}
	writer, reader := key("read,write"), key("read")
	server := world.StartServer(t, "--set", "auth.keys_file="+file)
	_, err := server.Client(palimpsest.WithAPIKey(writer)).Session("demo", "a").Sync(ctx, hello)
	world.Check(t, err)
	// A key that was read from a file ends with a line break.
	session := server.Client(palimpsest.WithAPIKey(" "+reader+"\r\n")).Session("demo", "a")
	_, err = session.Get(ctx)
	world.Check(t, err)
	_, err = session.Update(ctx, object{"title": "A title"})
	world.Equal(t, errors.Is(err, palimpsest.PermissionDenied), true)
	_, err = server.Client(palimpsest.WithAPIKey("wrong")).Session("demo", "a").Get(ctx)
	world.Equal(t, errors.Is(err, palimpsest.Unauthenticated), true)

	for _, key := range []string{reader + "\nx", reader + "ä"} {
		_, err = server.Client(palimpsest.WithAPIKey(key)).Session("demo", "a").Get(ctx)
		world.Equal(t, errors.Is(err, palimpsest.InvalidArgument), true)
		world.Contains(t, err.Error(), "PALIMPSEST_API_KEY", true)
		world.Contains(t, err.Error(), reader, false)
	}

	t.Setenv("PALIMPSEST_URL", "http://"+server.Address)
	t.Setenv("PALIMPSEST_API_KEY", reader+"\n")
	_, err = palimpsest.NewClient().Session("demo", "a").Get(ctx)
	world.Check(t, err)
}

func TestAURLCanBeHostAndPortAndCanHaveThePathOfTheAPI(t *testing.T) {
	ctx := context.Background()
	address := world.StartServer(t).Address
	for _, url := range []string{address, " " + address + "/\n", "http://" + address + "/v1", address + "/v1/"} {
		_, err := palimpsest.NewClient(palimpsest.WithURL(url)).Session("demo", "a").Sync(ctx, hello)
		world.Check(t, err)
	}
	for _, url := range []string{"", "localhost", "grpc://localhost:50051", "/api", ":50051"} {
		_, err := palimpsest.NewClient(palimpsest.WithURL(url)).Session("demo", "a").Get(ctx)
		world.Equal(t, errors.Is(err, palimpsest.InvalidArgument), true)
		world.Contains(t, err.Error(), "must begin with http:// or https://, or be host:port", true)
	}
}

func TestTheErrorOfAnotherServerHasItsURL(t *testing.T) {
	for _, answer := range []string{
		"<html>", "{}", "null",
		`{"error": {"message": "Unknown request URL", "type": "invalid_request_error", "code": null}}`,
		`{"error": {"message": "Invalid URL", "type": "invalid_request_error", "code": "unknown_url"}}`,
		`{"type": "error", "error": {"type": "not_found_error", "message": "Not Found"}}`,
	} {
		for status, text := range map[int]string{
			404: ": this is no Palimpsest server, check the URL of the server",
			503: ": a proxy answered, or this is no Palimpsest server",
		} {
			other := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) {
				writer.WriteHeader(status)
				_, _ = writer.Write([]byte(answer))
			}))
			client := palimpsest.NewClient(palimpsest.WithURL(other.URL+"/"), palimpsest.WithMaxRetries(0))
			_, err := client.Session("demo", "a").Sync(context.Background(), hello)
			other.Close()
			var failed *palimpsest.Error
			world.Equal(t, errors.As(err, &failed), true)
			world.Equal(t, failed.Status, status)
			world.Equal(t, failed.Message, fmt.Sprintf(
				"the response from %s has the HTTP status %d and no error of Palimpsest%s", other.URL, status, text))
		}
	}
}

func TestCallsWaitForAServerThatRestarts(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	server := world.StartServer(t)
	session := server.Client().Session("demo", "a")
	view, err := session.Sync(ctx, hello)
	world.Check(t, err)

	started, updated := make(chan bool), make(chan bool)
	go func() {
		for event, err := range session.Watch(ctx, 0) {
			if err != nil {
				return
			}
			switch event.Kind {
			case "session_created":
				close(started)
			case "session_updated":
				close(updated)
			}
		}
	}()
	<-started
	server.Stop(syscall.SIGTERM)
	synced := make(chan error)
	go func() {
		again, err := session.Sync(ctx, hello)
		if err == nil && texts(again) != texts(view) {
			err = errors.New("another view")
		}
		synced <- err
	}()
	world.StartServerAt(t, server.Folder, server.Address)
	world.Check(t, <-synced)
	_, err = session.Update(ctx, object{"title": "after the restart"})
	world.Check(t, err)
	<-updated
}

func TestAnUnreachableServer(t *testing.T) {
	client := palimpsest.NewClient(palimpsest.WithURL("http://127.0.0.1:9"), palimpsest.WithMaxRetries(2))
	_, err := client.Session("demo", "a").Get(context.Background())
	var failed *palimpsest.Error
	world.Equal(t, errors.As(err, &failed), true)
	world.Equal(t, failed.Code, palimpsest.Unavailable)
	world.Equal(t, failed.Reason, "")
	world.Equal(t, failed.Retryable(), true)
}

// counter counts the requests of a client, and keeps the headers of the last one.
type counter struct {
	count  atomic.Int32
	header atomic.Value
}

func (c *counter) RoundTrip(request *http.Request) (*http.Response, error) {
	c.count.Add(1)
	c.header.Store(request.Header)
	return http.DefaultTransport.RoundTrip(request)
}

func TestAnExceededRateIsRetriedAfterItsDelay(t *testing.T) {
	ctx := context.Background()
	config := filepath.Join(t.TempDir(), "palimpsest.toml")
	world.Check(t, os.WriteFile(config, []byte("[projects.demo.quotas]\nrequests_per_second = 1\n"), 0o600))
	server := world.StartServer(t, "--config", config)
	// syncs syncs concurrently, and returns an error if there is one.
	syncs := func(session *palimpsest.Session) (failed *palimpsest.Error) {
		failures := make(chan error)
		for range 5 {
			go func() {
				_, err := session.Sync(ctx, hello)
				failures <- err
			}()
		}
		for range 5 {
			errors.As(<-failures, &failed)
		}
		return failed
	}
	failed := syncs(server.Client(palimpsest.WithMaxRetries(0)).Session("demo", "a"))
	world.Equal(t, failed.Reason, "REQUEST_RATE_EXCEEDED")
	world.Equal(t, failed.Code, palimpsest.ResourceExhausted)
	world.Equal(t, failed.RetryAfter > 0 && failed.Retryable(), true)
	requests := &counter{}
	counting := server.Client(palimpsest.WithHTTPClient(&http.Client{Transport: requests}))
	world.Equal(t, syncs(counting.Session("demo", "a")) == nil, true)
	world.Equal(t, requests.count.Load() > 5, true)

	// Errors that cannot be retried cause one request.
	requests.count.Store(0)
	_, err := counting.Session("other", "none").Get(ctx)
	world.Equal(t, errors.Is(err, palimpsest.NotFound), true)
	world.Equal(t, requests.count.Load(), 1)
}

func TestTheDeadlineIsSentAndEndsACall(t *testing.T) {
	server := world.StartServer(t)
	requests := &counter{}
	session := server.Client(palimpsest.WithHTTPClient(&http.Client{Transport: requests})).Session("demo", "a")
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	_, err := session.Sync(ctx, hello)
	world.Check(t, err)
	// The timeout of the client is earlier than the deadline of the context.
	world.Equal(t, len(requests.header.Load().(http.Header).Get("Connect-Timeout-Ms")), len("120000"))

	// A server that accepts connections and answers nothing.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	world.Check(t, err)
	defer silent.Close()
	url := palimpsest.WithURL("http://" + silent.Addr().String())
	session = palimpsest.NewClient(url).Session("demo", "a")
	short, cancelShort := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancelShort()
	_, err = session.Sync(short, hello)
	world.Equal(t, errors.Is(err, palimpsest.DeadlineExceeded), true)
	world.Equal(t, errors.Is(err, context.DeadlineExceeded), true)
	canceled, cancelNow := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancelNow)
	_, err = session.Sync(canceled, hello)
	world.Equal(t, errors.Is(err, context.Canceled), true)
	_, err = palimpsest.NewClient(url, palimpsest.WithTimeout(200*time.Millisecond)).Session("demo", "a").Get(ctx)
	world.Equal(t, errors.Is(err, palimpsest.DeadlineExceeded), true)
}

func TestRejectionsAsTooLongAreRecognized(t *testing.T) {
	for text, want := range map[string]bool{
		"prompt is too long: 210000 tokens > 200000 maximum":                                          true,
		"input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000":                 true,
		"This model's maximum context length is 8192 tokens. However, your messages resulted in 9000": true,
		"Your input exceeds the context window of this model.":                                        true,
		"Input is too long for requested model.":                                                      true,
		"The input token count (9) exceeds the maximum number of tokens allowed (8)":                  true,
		"the request exceeds the available context size":                                              true,
		`POST "http://localhost": 413 Request Entity Too Large <html>`:                                true,
		"messages.0.content: Field required":                                                          false,
		"rate limit exceeded":                                                                         false,
	} {
		world.Equal(t, palimpsest.IsTooLong(errors.New(text)), want)
	}
	world.Equal(t, palimpsest.IsTooLong(nil), false)
}

func TestGoroutinesShareASession(t *testing.T) {
	ctx := context.Background()
	session := world.StartServer(t).Session(t)
	failures := make(chan error)
	for range 20 {
		go func() {
			view, err := session.Sync(ctx, hello)
			if err == nil && !strings.Contains(texts(view), "hello") {
				err = errors.New(texts(view))
			}
			failures <- err
		}()
	}
	for range 20 {
		world.Check(t, <-failures)
	}
}
