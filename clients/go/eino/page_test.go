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
	// The first block is a program, and the other ones continue its last function.
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
		object{"text": "The first one."}, object{"text": "Yes."}, object{"text": "The last one."})

	folder := t.TempDir()
	top, err := filepath.Abs("../../..")
	world.Check(t, err)
	world.Check(t, os.Symlink(top, filepath.Join(folder, "palimpsest")))
	module := filepath.Join(folder, "agent")
	t.Setenv("PALIMPSEST_URL", "http://"+server.Address)
	world.Write(t, module, "go.mod", "module example.com/agent\n\ngo 1.24.0\n")
	world.Write(t, module, "main.go", first)
	world.Run(t, module, "sh", "-ec", installation)
	world.Run(t, module, "go", "vet", ".")
	// The component of eino reads neither the URL nor the key from the environment.
	config := `ChatModelConfig{BaseURL: "` + provider.URL + `/v1", APIKey: "key", `
	world.Write(t, module, "main.go", strings.Replace(program, "ChatModelConfig{", config, 1))
	world.Equal(t, world.Run(t, module, "go", "run", "."), want)
}
