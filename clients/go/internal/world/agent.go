package world

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	palimpsest "github.com/palimpsest-dev/palimpsest/clients/go"
)

// The question to an agent, and its answer.
const (
	Question = "Why did the build fail?"
	Answer   = "Its disk was full."
)

var (
	// Call is a call of the tool of the agent, which returns [Log].
	Call = Object{"name": "read_log"}
	// Look is a turn with a call of the tool of the agent, and Search one that reads the stored log back.
	Look   = Object{"calls": []Object{Call}}
	Search = Object{"calls": []Object{search}}
	search = Object{"name": "SearchTranscript", "input": Object{"pattern": "disk full"}}
	// Turns has parallel calls in its first two turns. The second one reads the stored result back.
	Turns = []Object{
		{"text": "I look.", "calls": []Object{Call, Call}},
		{"calls": []Object{search, Call}},
		{"text": Answer},
	}
)

// CheckTurns checks the requests of a run with [Turns].
func (p *Provider) CheckTurns(t *testing.T, model string) {
	t.Helper()
	requests := p.Requests(t, model)
	Equal(t, len(requests), len(Turns))
	for index, request := range requests {
		sent := string(request.Body)
		Equal(t, request.Status, 200)
		Equal(t, len(sent) < 50_000, true)
		Contains(t, sent, "palimpsest://", index > 0)
		// Only the search of the service has found the last line.
		results := strings.NewReplacer(`"pattern":"disk full"`, "", `\"pattern\":\"disk full\"`, "").Replace(sent)
		Contains(t, results, "disk full", index == 2)
	}
}

// Usages returns the number of messages of a session with a usage.
func Usages(t *testing.T, session *palimpsest.Session) int {
	t.Helper()
	count := 0
	for message, err := range session.Messages(context.Background(), nil) {
		Check(t, err)
		count += strings.Count(message.RawJSON(), `"usage"`)
	}
	return count
}

// Run runs a program in a folder and returns its output.
func Run(t *testing.T, folder string, command ...string) string {
	t.Helper()
	run := exec.Command(command[0], command[1:]...)
	run.Dir = folder
	var failure strings.Builder
	run.Stderr = &failure
	done, err := run.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", command, err, failure.String())
	}
	return string(done)
}

// Write writes a file of a folder, which is created, and returns its path.
func Write(t *testing.T, folder, name, text string) string {
	t.Helper()
	path := filepath.Join(folder, name)
	Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	Check(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
