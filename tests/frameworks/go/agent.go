package main

import (
	"context"
	"errors"

	"github.com/cloudwego/eino-ext/components/model/openai"
	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/compose"
)

// maxIterations is above the number of model calls in a user turn. The default of eino is 20.
const maxIterations = 1_000

// makeAgent creates the agent of a variant.
type makeAgent func(ctx context.Context, given *play, config *adk.ChatModelAgentConfig) (*adk.ChatModelAgent, error)

var variants = map[string]makeAgent{
	"plain":            newPlain,
	"reduction":        newReduction,
	"reduction_scaled": newScaled,
	"reduction_files":  newFiles,
	"palimpsest":       newPalimpsest,
}

// newConversation returns an empty conversation with the agent of the play.
func newConversation(ctx context.Context, h *harness, given *play) (*conversation, error) {
	variant, known := variants[given.Variant]
	if !known {
		return nil, errors.New("no such variant")
	}
	chatModel, err := openai.NewChatModel(ctx, &openai.ChatModelConfig{
		APIKey:              given.Key,
		BaseURL:             given.URL + "/v1",
		Model:               given.Model,
		MaxCompletionTokens: &given.MaxOutput,
	})
	if err != nil {
		return nil, err
	}
	agent, err := variant(ctx, given, &adk.ChatModelAgentConfig{
		Name:        "agent",
		Description: "Plays a task.",
		Instruction: given.System,
		Model:       chatModel,
		ToolsConfig: adk.ToolsConfig{
			ToolsNodeConfig: compose.ToolsNodeConfig{
				Tools: harnessTools(h, given.Tools),
				// By default, tools run at once, and the conversation gets their results in the order in which they
				// finish. Here, this order would be random, and with it the part of a request that is in the cache.
				ExecuteSequentially: true,
			},
		},
		MaxIterations: maxIterations,
	})
	if err != nil {
		return nil, err
	}
	return &conversation{harness: h, agent: agent}, nil
}
