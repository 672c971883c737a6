package sdktest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/palimpsest-dev/palimpsest/clients/go/internal/world"
)

// readme has the blocks of the README.
type readme struct {
	// programs are the complete programs. The first one has the statements of all blocks that continue it.
	programs []string
	// outputs are the outputs of the programs.
	outputs []string
	// first is the first program alone.
	first string
	shell []string
}

func readReadme(t *testing.T) readme {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	world.Check(t, err)
	var read readme
	for _, block := range regexp.MustCompile("(?s)```(go|text|sh)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		kind, content := block[1], block[2]
		switch {
		case kind == "sh":
			read.shell = append(read.shell, content)
		case kind == "go" && strings.HasPrefix(content, "package main"):
			read.programs, read.outputs = append(read.programs, content), append(read.outputs, "")
			if read.first == "" {
				read.first = content
			}
		case kind == "go":
			read.programs[0] = strings.TrimSuffix(read.programs[0], "}\n") + content + "}\n"
		default:
			read.outputs[len(read.outputs)-1] += content
		}
	}
	// The text names the packages of the blocks that continue the first program.
	added := "import ("
	for _, sentence := range regexp.MustCompile("needs\\s+the\\s+import\\s+`(.*?)`").FindAllStringSubmatch(string(text), -1) {
		added += "\n\t" + sentence[1]
	}
	read.programs[0] = strings.Replace(read.programs[0], "import (", added, 1)
	return read
}

// environment starts the servers that programs find by their environment.
func environment(t *testing.T) (*world.Server, *world.Provider) {
	t.Helper()
	server, provider := world.StartServer(t), world.StartProvider(t)
	t.Setenv("PALIMPSEST_URL", "http://"+server.Address)
	t.Setenv("ANTHROPIC_BASE_URL", provider.URL)
	t.Setenv("OPENAI_BASE_URL", provider.URL+"/v1")
	t.Setenv("ANTHROPIC_API_KEY", "key")
	t.Setenv("OPENAI_API_KEY", "key")
	return server, provider
}

func TestTheCodeOfTheReadmeRuns(t *testing.T) {
	_, provider := environment(t)
	provider.Script(t, "claude-sonnet-4-5", world.Look, world.Search, object{"text": world.Answer}, object{"text": "Yes."},
		object{"text": "The first one."})
	provider.Script(t, "gpt-5", object{"text": "Hello."})
	read := readReadme(t)
	world.Equal(t, len(read.programs), 2)
	world.Run(t, ".", "go", "vet", world.Write(t, t.TempDir(), "main.go", read.first))
	path := world.Write(t, t.TempDir(), "main.go", read.programs[0])
	world.Equal(t, world.Run(t, ".", "go", "run", path), read.outputs[0])
}

func TestTheInstallationOfTheReadmeWorks(t *testing.T) {
	folder := t.TempDir()
	top, err := filepath.Abs("../../../..")
	world.Check(t, err)
	world.Check(t, os.Symlink(top, filepath.Join(folder, "palimpsest")))
	module := filepath.Join(folder, "agent")
	_, provider := environment(t)
	provider.Script(t, "claude-sonnet-4-5", object{"text": world.Answer})
	read := readReadme(t)
	world.Write(t, module, "main.go", read.first)
	// The clone is the repository of this test.
	creation, use, start := read.shell[0], read.shell[1], read.shell[2]
	_, use, _ = strings.Cut(use, "\n")
	world.Equal(t, world.Run(t, module, "sh", "-ec", creation+use+start), world.Answer+"\n")
}

func TestTheStubsOfTheReadmeAreImported(t *testing.T) {
	server := world.StartServer(t)
	folder := t.TempDir()
	top, err := filepath.Abs("../../../..")
	world.Check(t, err)
	world.Check(t, os.Symlink(top, filepath.Join(folder, "palimpsest")))
	module := filepath.Join(folder, "agent")
	read := readReadme(t)
	world.Write(t, module, "main.go", read.programs[1])
	// The usual cache can have an earlier module of this version. It serves all other modules.
	cache, proxies, _ := strings.Cut(strings.TrimSpace(world.Run(t, ".", "go", "env", "GOMODCACHE", "GOPROXY")), "\n")
	t.Setenv("GOPROXY", "file://"+cache+"/cache/download,"+proxies)
	t.Setenv("GOMODCACHE", filepath.Join(folder, "cache"))
	t.Setenv("GOFLAGS", "-modcacherw")
	start := "go mod tidy\ngo run . " + server.Address
	world.Equal(t, world.Run(t, module, "sh", "-ec", read.shell[0]+read.shell[3]+start), read.outputs[1])
}

func TestTheAgentRuns(t *testing.T) {
	_, provider := environment(t)
	agent := filepath.Join(t.TempDir(), "agent")
	world.Run(t, "..", "go", "build", "-o", agent, "./agent")
	for name, script := range map[string][]object{
		"reads":    {world.Look, world.Search, {"text": world.Answer}},
		"too-long": {world.Look, world.Search, {"fault": object{"html": 413}}, {"text": world.Answer}},
	} {
		t.Run(name, func(t *testing.T) {
			provider.Script(t, "fake-"+name, script...)
			t.Setenv("MODEL", "fake-"+name)
			t.Setenv("PALIMPSEST_SESSION", name)
			world.Equal(t, world.Run(t, ".", agent, world.Question), world.Answer+"\n")
			requests := provider.Requests(t, "fake-"+name)
			world.Contains(t, string(requests[0].Body), "palimpsest://", false)
			world.Contains(t, string(requests[1].Body), "palimpsest://", true)
			world.Contains(t, string(requests[1].Body), "disk full", false)
			world.Contains(t, string(requests[2].Body), "disk full", true)
			if name == "too-long" {
				world.Equal(t, requests[2].Status, 413)
				world.Equal(t, len(requests[3].Body) < len(requests[2].Body), true)
			}
		})
	}
}
