package eino_test

import (
	"os"
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
	provider.Script(t, "gpt-5", world.Look, world.Search, object{"text": world.Answer},
		object{"text": "The first one."}, object{"text": "The last one."}, object{"text": "Yes."})

	folder := t.TempDir()
	top, err := filepath.Abs("../../..")
	world.Check(t, err)
	world.Check(t, os.Symlink(top, filepath.Join(folder, "palimpsest")))
	module := filepath.Join(folder, "agent")
	world.Check(t, os.Mkdir(module, 0o755))
	t.Setenv("PALIMPSEST_URL", "http://"+server.Address)
	t.Setenv("OPENAI_BASE_URL", provider.URL+"/v1")
	t.Setenv("OPENAI_API_KEY", "key")
	world.Run(t, module, "go", "mod", "init", "example.com/agent")
	world.Run(t, module, "sh", "-ec", installation)
	world.Write(t, module, "main.go", first)
	world.Run(t, module, "go", "mod", "tidy")
	world.Run(t, module, "go", "vet", ".")
	world.Write(t, module, "main.go", program)
	world.Equal(t, world.Run(t, module, "go", "run", "."), want)
}
