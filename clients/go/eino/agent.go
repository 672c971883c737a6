package eino

import (
	"context"
	"slices"

	"github.com/cloudwego/eino/adk"

	palimpsest "github.com/palimpsest-dev/palimpsest/clients/go"
)

// NewChatModelAgent does the same as [adk.NewChatModelAgent] for an agent with a session: the agent gets the model of
// [NewModel] and also the tools of [Tools]. `name` is the name of the model in the config, which decides the size of its
// context window. The config stays unchanged. The session of the context, here and in a run, replaces the given session,
// which can be nil then: see [WithSession].
//
// The definitions of the tools are read from the server, which must run. Without them, use [adk.NewChatModelAgent] with
// the model of [NewModel]: the creation of this agent makes no call.
func NewChatModelAgent(
	ctx context.Context, session *palimpsest.Session, name string, config *adk.ChatModelAgentConfig,
) (*adk.ChatModelAgent, error) {
	tools, err := Tools(ctx, session)
	if err != nil {
		return nil, err
	}
	managed := *config
	// A missing model stays nil, so that the constructor of the framework rejects it.
	if config.Model != nil {
		managed.Model = NewModel(config.Model, name, session)
	}
	managed.ToolsConfig.Tools = slices.Concat(config.ToolsConfig.Tools, tools)
	return adk.NewChatModelAgent(ctx, &managed)
}
