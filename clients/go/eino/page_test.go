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
	// The first block is a program, and the other ones continue its last function.
	var program, first, want string
	for _, block := range regexp.MustCompile("(?s)```(go|text)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if block[1] == "go" {
			program = strings.TrimSuffix(program, "}\n") + block[2]
			if strings.HasPrefix(block[2], "package main") {
				program, first = block[2], block[2]
			} else {
				program += "}\n"
			}
		} else {
			want += block[2]
		}
	}
	provider, server := world.StartProvider(t), world.StartServer(t)
	// The component of eino reads neither the URL nor the key from the environment.
	config := `ChatModelConfig{BaseURL: "` + provider.URL + `/v1", APIKey: "key", `
	program = strings.Replace(program, "ChatModelConfig{", config, 1)
	search := object{"calls": []object{{"name": "SearchTranscript", "input": object{"pattern": "disk full"}}}}
	provider.Script(t, "gpt-5", object{"calls": []object{call}}, search, object{"text": answer},
		object{"text": "The first one."}, object{"text": "Yes."}, object{"text": "The last one."})
	path := filepath.Join(t.TempDir(), "main.go")
	world.Check(t, os.WriteFile(path, []byte(first), 0o600))
	output, err := exec.Command("go", "vet", path).CombinedOutput()
	world.Equal(t, string(output), "")
	world.Check(t, err)
	world.Check(t, os.WriteFile(path, []byte(program), 0o600))
	run := exec.Command("go", "run", path)
	run.Env = append(os.Environ(), "PALIMPSEST_URL=http://"+server.Address)
	output, err = run.CombinedOutput()
	world.Equal(t, string(output), want)
	world.Check(t, err)
}
