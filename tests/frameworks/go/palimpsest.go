package main

import (
	"context"

	"github.com/cloudwego/eino/adk"
	"github.com/palimpsest-dev/palimpsest/clients/go/eino" // glue
)

// newPalimpsest returns an agent with a session, the default policy and no model for summaries.
func newPalimpsest(ctx context.Context, given *play, config *adk.ChatModelAgentConfig) (*adk.ChatModelAgent, error) {
	session := eino.NewSession("demo", "t")                          // glue
	return eino.NewChatModelAgent(ctx, session, given.Model, config) // glue
}
