package main

import (
	"context"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/adk/filesystem"                   // glue
	tools "github.com/cloudwego/eino/adk/middlewares/filesystem" // glue
	"github.com/cloudwego/eino/adk/middlewares/reduction"        // glue
)

// newScaled returns an agent that clears old tool results and moves large ones into files. The limits are the
// defaults for a window of 128,000 tokens, in proportion to the window.
func newScaled(ctx context.Context, given *play, config *adk.ChatModelAgentConfig) (*adk.ChatModelAgent, error) {
	files := filesystem.NewInMemoryBackend()                                                                       // glue
	reader, err := tools.NewMiddleware(ctx, &tools.Config{Backend: files, WithoutLargeToolResultOffloading: true}) // glue
	if err != nil {                                                                                                // glue
		return nil, err // glue
	} // glue
	reducer, err := reduction.NewToolResultMiddleware(ctx, &reduction.ToolResultConfig{ // glue
		Backend:                files,                           // glue
		ClearingTokenThreshold: 20_000 * given.Window / 128_000, // glue
		KeepRecentTokens:       40_000 * given.Window / 128_000, // glue
		OffloadingTokenLimit:   20_000 * given.Window / 128_000, // glue
	}) // glue
	if err != nil { // glue
		return nil, err // glue
	} // glue
	config.Middlewares = []adk.AgentMiddleware{reader, reducer} // glue
	return adk.NewChatModelAgent(ctx, config)
}
