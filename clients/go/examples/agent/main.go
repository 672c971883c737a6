// An agent with the SDK of Anthropic: go run ./agent "Why did the build fail?"
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	palimpsest "github.com/palimpsest-dev/palimpsest/clients/go" // glue
)

var (
	model   = cmp.Or(os.Getenv("MODEL"), "claude-sonnet-4-5")
	task    = cmp.Or(os.Getenv("PALIMPSEST_SESSION"), "agent")
	readLog = anthropic.ToolParam{
		Name: "read_log", Description: anthropic.String("Reads the build's log."),
		InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{}},
	}
)

// largeLog returns a large log. The service stores it, and the model gets a preview and a reference.
func largeLog(context.Context, json.RawMessage) (any, error) {
	var lines strings.Builder
	for n := range 5_000 {
		fmt.Fprintf(&lines, "step %d: compiled, and nothing was wrong\n", n)
	}
	return lines.String() + "disk full\n", nil
}

// answer answers a question. The model reads the stored log with the tools of the service.
func answer(ctx context.Context, text string) (string, error) {
	session := palimpsest.NewClient().Session("demo", task)                    // glue
	client := anthropic.NewClient(option.WithMiddleware(session.Middleware())) // glue
	params := anthropic.MessageNewParams{
		Model:     anthropic.Model(model),
		MaxTokens: 1_024,
		Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(text))},
		Tools:     []anthropic.ToolUnionParam{{OfTool: &readLog}},
	}
	functions := palimpsest.Functions{"read_log": largeLog} // glue
	for {
		// A view that is not sendable is an error, and a prompt that the provider rejects as too long is shortened.
		response, err := client.Messages.New(ctx, params)
		if err != nil {
			return "", err
		}
		isFinal, err := palimpsest.Answer(ctx, session, response, &params.Messages, functions) // glue
		if err != nil {
			return "", err
		}
		if isFinal {
			return textOf(response), nil
		}
	}
}

func textOf(response *anthropic.Message) string {
	var text strings.Builder
	for _, block := range response.Content {
		text.WriteString(block.Text)
	}
	return text.String()
}

func main() {
	text, err := answer(context.Background(), strings.Join(os.Args[1:], " "))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
}
