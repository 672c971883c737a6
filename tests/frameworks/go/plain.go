package main

import (
	"context"

	"github.com/cloudwego/eino/adk"
)

// newPlain returns an agent without management of the context.
func newPlain(ctx context.Context, _ *play, config *adk.ChatModelAgentConfig) (*adk.ChatModelAgent, error) {
	return adk.NewChatModelAgent(ctx, config)
}
