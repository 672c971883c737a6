// Package world starts the servers of the tests: Palimpsest, and the strict fake provider of models.
package world

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
	"testing"
	"time"

	palimpsest "github.com/palimpsest-dev/palimpsest/clients/go"
)

// Log is a log that the service stores and replaces by a preview. Only its last line has the cause.
var Log = strings.Repeat("compiled, and nothing was wrong\n", 5_000) + "disk full\n"

// Program is a program that ends with the test. Its output goes to a file, because nobody reads a pipe.
type Program struct {
	command *exec.Cmd
	output  string
	ended   chan struct{}
}

func start(t *testing.T, variable string, arguments ...string) *Program {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Fatalf("Set %s to the path of the program.", variable)
	}
	output, err := os.CreateTemp(t.TempDir(), "output")
	Check(t, err)
	command := exec.Command(path, arguments...)
	command.Stdout, command.Stderr = output, output
	// The server rejects variables with its prefix that are no settings.
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "PALIMPSEST_") {
			command.Env = append(command.Env, entry)
		}
	}
	command.Env = append(command.Env, "PALIMPSEST_ADMIN_LISTEN=127.0.0.1:0")
	Check(t, command.Start())
	_ = output.Close()
	started := &Program{command, output.Name(), make(chan struct{})}
	go func() {
		_ = command.Wait()
		close(started.ended)
	}()
	t.Cleanup(func() { started.Stop(os.Kill) })
	return started
}

// Stop sends a signal and waits for the end of the program.
func (p *Program) Stop(how os.Signal) {
	_ = p.command.Process.Signal(how)
	<-p.ended
}

// line waits for the first line with a text.
func (p *Program) line(t *testing.T, part string) string {
	t.Helper()
	for range 6_000 {
		text, err := os.ReadFile(p.output)
		Check(t, err)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, part) && strings.HasSuffix(line, "\n") {
				return strings.TrimSpace(line)
			}
		}
		select {
		case <-p.ended:
			t.Fatalf("The program ended: %s", text)
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Fatalf("no line with %s", part)
	return ""
}

// Server is a server of Palimpsest. A restart keeps the address and the data.
type Server struct {
	*Program
	Address, Folder string
}

// StartServer starts a server on a free port, with data that the test removes.
func StartServer(t *testing.T, arguments ...string) *Server {
	t.Helper()
	return StartServerAt(t, filepath.Join(t.TempDir(), "data"), "127.0.0.1:0", arguments...)
}

// StartServerAt starts a server with a data directory and an address.
func StartServerAt(t *testing.T, folder, listen string, arguments ...string) *Server {
	t.Helper()
	given := []string{"serve", "--listen", listen, "--data-dir", folder, "--log-format", "json"}
	started := start(t, "PALIMPSEST_BINARY", append(given, arguments...)...)
	var serving struct{ GRPC string }
	Check(t, json.Unmarshal([]byte(started.line(t, `"serving"`)), &serving))
	return &Server{started, serving.GRPC, folder}
}

// Client returns a client of the server.
func (s *Server) Client(options ...palimpsest.ClientOption) *palimpsest.Client {
	given := []palimpsest.ClientOption{palimpsest.WithURL("http://" + s.Address)}
	return palimpsest.NewClient(append(given, options...)...)
}

// Session returns a session that no other test uses.
func (s *Server) Session(t *testing.T, options ...palimpsest.SyncOption) *palimpsest.Session {
	return s.Client().Session("demo", NameOf(t), options...)
}

// NameOf returns a name that no other test uses.
func NameOf(t *testing.T) string { return strings.ReplaceAll(t.Name(), "/", ".") + rand.Text()[:6] }

// Provider is the strict fake provider of models.
type Provider struct{ URL string }

// StartProvider starts the fake provider.
func StartProvider(t *testing.T) *Provider {
	t.Helper()
	return &Provider{start(t, "PALIMPSEST_FAKE_PROVIDER").line(t, "http://")}
}

// Object is a JSON object.
type Object = map[string]any

// Script sets the answers to the next requests with a model.
func (p *Provider) Script(t *testing.T, model string, turns ...Object) {
	t.Helper()
	body, err := json.Marshal(Object{"match": Object{"model": model}, "turns": turns})
	Check(t, err)
	response, err := http.Post(p.URL+"/_control/script", "application/json", bytes.NewReader(body))
	Check(t, err)
	_ = response.Body.Close()
	if response.StatusCode >= 300 {
		t.Fatal(response.Status)
	}
}

// Recorded is a request that the fake provider received.
type Recorded struct {
	Status int
	Body   json.RawMessage
}

// Requests returns the requests with a model.
func (p *Provider) Requests(t *testing.T, model string) []Recorded {
	t.Helper()
	response, err := http.Get(p.URL + "/_control/requests")
	Check(t, err)
	defer response.Body.Close()
	var all struct{ Requests []Recorded }
	Check(t, json.NewDecoder(response.Body).Decode(&all))
	var found []Recorded
	for _, request := range all.Requests {
		if strings.Contains(string(request.Body), fmt.Sprintf("%q", model)) {
			found = append(found, request)
		}
	}
	return found
}

// Check fails the test after an error.
func Check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Equal fails the test if the values differ.
func Equal[T comparable](t *testing.T, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// Contains fails the test if a text contains a part, or does not contain it.
func Contains(t *testing.T, text, part string, want bool) {
	t.Helper()
	if strings.Contains(text, part) != want {
		t.Fatalf("contains %q: want %v in %.2000s", part, want, text)
	}
}
