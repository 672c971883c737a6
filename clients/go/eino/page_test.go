package eino_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/palimpsest-dev/palimpsest/clients/go/internal/world"
)

func TestTheCodeOfThePageRuns(t *testing.T) {
	text, err := os.ReadFile("../../../docs/frameworks/eino.md")
	world.Check(t, err)
	// The first block is a program, and the other ones continue its last function. The last commands use the clone, which
	// is the repository of this test.
	var installation, first, program, want string
	for _, block := range regexp.MustCompile("(?s)```(sh|go|text)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		switch content := block[2]; {
		case block[1] == "sh":
			installation = content
		case block[1] == "text":
			want += content
		case first == "":
			first, program = content, content
		default:
			program = strings.TrimSuffix(program, "}\n") + content + "}\n"
		}
	}
	provider, server := world.StartProvider(t), world.StartServer(t)
	search := object{"calls": []object{{"name": "SearchTranscript", "input": object{"pattern": "disk full"}}}}
	provider.Script(t, "gpt-5", object{"calls": []object{call}}, search, object{"text": answer},
		object{"text": "The first one."}, object{"text": "The last one."}, object{"text": "Yes."})

	folder := t.TempDir()
	top, err := filepath.Abs("../../..")
	world.Check(t, err)
	world.Check(t, os.Symlink(top, filepath.Join(folder, "palimpsest")))
	module := filepath.Join(folder, "agent")
	world.Check(t, os.Mkdir(module, 0o755))
	write := func(name, text string) {
		world.Check(t, os.WriteFile(filepath.Join(module, name), []byte(text), 0o600))
	}
	run := func(command ...string) string {
		t.Helper()
		started := exec.Command(command[0], command[1:]...)
		started.Dir, started.Env = module, append(os.Environ(), "PALIMPSEST_URL=http://"+server.Address,
			"OPENAI_BASE_URL="+provider.URL+"/v1", "OPENAI_API_KEY=key")
		output, err := started.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", command, err, output)
		}
		return string(output)
	}
	run("go", "mod", "init", "example.com/agent")
	run("sh", "-ec", installation)
	write("main.go", first)
	run("go", "mod", "tidy")
	run("go", "vet", ".")
	write("main.go", program)
	world.Equal(t, run("go", "run", "."), want)
}
