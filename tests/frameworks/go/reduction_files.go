package main

import (
	"context"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/adk/filesystem"                   // glue
	tools "github.com/cloudwego/eino/adk/middlewares/filesystem" // glue
	"github.com/cloudwego/eino/adk/middlewares/reduction"        // glue
	"github.com/cloudwego/eino/compose"                          // glue
)

// newFiles does the same as newScaled, and moves every result of more than 2,000 tokens into a file.
// eino compares the tokens of a result with four times the limit.
func newFiles(ctx context.Context, given *play, config *adk.ChatModelAgentConfig) (*adk.ChatModelAgent, error) {
	files := filesystem.NewInMemoryBackend()                                                                       // glue
	reader, err := tools.NewMiddleware(ctx, &tools.Config{Backend: files, WithoutLargeToolResultOffloading: true}) // glue
	if err != nil {                                                                                                // glue
		return nil, err // glue
	} // glue
	reducer, err := reduction.NewToolResultMiddleware(ctx, &reduction.ToolResultConfig{ // glue
		Backend:                files,                           // glue
		ClearingTokenThreshold: 20_000 * given.Window / 128_000, // glue
		KeepRecentTokens:       40_000 * given.Window / 128_000, // glue
		OffloadingTokenLimit:   500,                             // glue
	}) // glue
	if err != nil { // glue
		return nil, err // glue
	} // glue
	finder := adk.AgentMiddleware{WrapToolCall: compose.ToolMiddleware{Invokable: notEmpty}} // glue
	config.Middlewares = []adk.AgentMiddleware{reader, reducer, finder}                      // glue
	return adk.NewChatModelAgent(ctx, config)
}

// notEmpty replaces the result of a search without matches. It is empty, and OpenAI rejects an empty result.
func notEmpty(next compose.InvokableToolEndpoint) compose.InvokableToolEndpoint { // glue
	return func(ctx context.Context, input *compose.ToolInput) (*compose.ToolOutput, error) { // glue
		output, err := next(ctx, input)        // glue
		if err == nil && output.Result == "" { // glue
			output.Result = "No matches." // glue
		} // glue
		return output, err // glue
	} // glue
} // glue
