package palimpsest_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	palimpsest "github.com/palimpsest-dev/palimpsest/clients/go"
)

// buildLog is a log that the service stores and replaces by a preview. Only its last line has the cause.
var buildLog = strings.Repeat("compiled, and nothing was wrong\n", 5_000) + "disk full\n"

// program is a program that ends with the test. Its output goes to a file, because nobody reads a pipe.
type program struct {
	command *exec.Cmd
	output  string
	ended   chan struct{}
}

func start(t *testing.T, variable string, arguments ...string) *program {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Fatalf("Set %s to the path of the program.", variable)
	}
	output, err := os.CreateTemp(t.TempDir(), "output")
	check(t, err)
	command := exec.Command(path, arguments...)
	command.Stdout, command.Stderr = output, output
	// The server rejects variables with its prefix that are no settings.
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "PALIMPSEST_") {
			command.Env = append(command.Env, entry)
		}
	}
	command.Env = append(command.Env, "PALIMPSEST_ADMIN_LISTEN=127.0.0.1:0")
	check(t, command.Start())
	_ = output.Close()
	started := &program{command, output.Name(), make(chan struct{})}
	go func() {
		_ = command.Wait()
		close(started.ended)
	}()
	t.Cleanup(func() { started.stop(os.Kill) })
	return started
}

func (p *program) stop(how os.Signal) {
	_ = p.command.Process.Signal(how)
	<-p.ended
}

// line waits for the first line with a text.
func (p *program) line(t *testing.T, part string) string {
	t.Helper()
	for range 6_000 {
		text, err := os.ReadFile(p.output)
		check(t, err)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, part) && strings.HasSuffix(line, "\n") {
				return strings.TrimSpace(line)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("no line with %s", part)
	return ""
}

// server is a server of Palimpsest. A restart keeps the address and the data.
type server struct {
	*program
	address, folder string
}

func startServer(t *testing.T, arguments ...string) *server {
	t.Helper()
	return startServerAt(t, filepath.Join(t.TempDir(), "data"), "127.0.0.1:0", arguments...)
}

func startServerAt(t *testing.T, folder, listen string, arguments ...string) *server {
	t.Helper()
	given := []string{"serve", "--listen", listen, "--data-dir", folder, "--log-format", "json"}
	started := start(t, "PALIMPSEST_BINARY", append(given, arguments...)...)
	var serving struct{ GRPC string }
	check(t, json.Unmarshal([]byte(started.line(t, `"serving"`)), &serving))
	return &server{started, serving.GRPC, folder}
}

func (s *server) client(options ...palimpsest.ClientOption) *palimpsest.Client {
	given := []palimpsest.ClientOption{palimpsest.WithURL("http://" + s.address)}
	return palimpsest.NewClient(append(given, options...)...)
}

func (s *server) session(t *testing.T, options ...palimpsest.SyncOption) *palimpsest.Session {
	return s.client().Session("demo", nameOf(t), options...)
}

// nameOf returns a name that no other test uses.
func nameOf(t *testing.T) string { return strings.ReplaceAll(t.Name(), "/", ".") + rand.Text()[:6] }

// provider is the strict fake provider of models.
type provider struct{ url string }

func startProvider(t *testing.T) *provider {
	t.Helper()
	return &provider{start(t, "PALIMPSEST_FAKE_PROVIDER").line(t, "http://")}
}

type object = map[string]any

func (p *provider) script(t *testing.T, model string, turns ...object) {
	t.Helper()
	body, err := json.Marshal(object{"match": object{"model": model}, "turns": turns})
	check(t, err)
	response, err := http.Post(p.url+"/_control/script", "application/json", bytes.NewReader(body))
	check(t, err)
	_ = response.Body.Close()
	if response.StatusCode >= 300 {
		t.Fatal(response.Status)
	}
}

type recorded struct {
	Status int
	Body   json.RawMessage
}

// requests returns the requests with a model.
func (p *provider) requests(t *testing.T, model string) []recorded {
	t.Helper()
	response, err := http.Get(p.url + "/_control/requests")
	check(t, err)
	defer response.Body.Close()
	var all struct{ Requests []recorded }
	check(t, json.NewDecoder(response.Body).Decode(&all))
	var found []recorded
	for _, request := range all.Requests {
		if strings.Contains(string(request.Body), fmt.Sprintf("%q", model)) {
			found = append(found, request)
		}
	}
	return found
}

// continueAfter lets a stopped server continue at the end of the test.
func (s *server) pause(t *testing.T) {
	check(t, s.command.Process.Signal(syscall.SIGSTOP))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *testing.T, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func contains(t *testing.T, text, part string, want bool) {
	t.Helper()
	if strings.Contains(text, part) != want {
		t.Fatalf("contains %q: want %v in %.2000s", part, want, text)
	}
}
