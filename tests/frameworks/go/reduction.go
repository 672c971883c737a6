package main

import (
	"context"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/adk/filesystem"                   // glue
	tools "github.com/cloudwego/eino/adk/middlewares/filesystem" // glue
	"github.com/cloudwego/eino/adk/middlewares/reduction"        // glue
)

// newReduction returns an agent that clears old tool results and moves large ones into files, with all defaults. The
// documentation requires a tool that reads these files. It is one of the tools of the middleware for files.
func newReduction(ctx context.Context, _ *play, config *adk.ChatModelAgentConfig) (*adk.ChatModelAgent, error) {
	files := filesystem.NewInMemoryBackend()                                                                       // glue
	reader, err := tools.NewMiddleware(ctx, &tools.Config{Backend: files, WithoutLargeToolResultOffloading: true}) // glue
	if err != nil {                                                                                                // glue
		return nil, err // glue
	} // glue
	reducer, err := reduction.NewToolResultMiddleware(ctx, &reduction.ToolResultConfig{Backend: files}) // glue
	if err != nil {                                                                                     // glue
		return nil, err // glue
	} // glue
	config.Middlewares = []adk.AgentMiddleware{reader, reducer} // glue
	return adk.NewChatModelAgent(ctx, config)
}
