package eino

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"
	"github.com/eino-contrib/jsonschema"

	palimpsest "github.com/palimpsest-dev/palimpsest/clients/go"
)

// Tools returns the tools of the service, for the tools of an agent. The model reads stored results and the transcript
// with them. Their definitions are read from the server once per session. The session of the context, here and in a
// run, replaces the given session, which can be nil then: see [WithSession].
func Tools(ctx context.Context, session *palimpsest.Session) ([]tool.BaseTool, error) {
	reader, err := sessionOf(ctx, session)
	if err != nil {
		return nil, err
	}
	definitions, err := reader.Tools(ctx, palimpsest.OpenAIChat)
	if err != nil {
		return nil, err
	}
	tools := make([]tool.BaseTool, len(definitions))
	for index, definition := range definitions {
		var parameters jsonschema.Schema
		if err := json.Unmarshal(definition.InputSchema, &parameters); err != nil {
			return nil, err
		}
		tools[index] = &serviceTool{session: session, info: &schema.ToolInfo{
			Name:        definition.Name,
			Desc:        definition.Description,
			ParamsOneOf: schema.NewParamsOneOfByJSONSchema(&parameters),
		}}
	}
	return tools, nil
}

// serviceTool is a tool that the service runs.
type serviceTool struct {
	session *palimpsest.Session
	info    *schema.ToolInfo
}

// Info returns the definition of the tool.
func (t *serviceTool) Info(context.Context) (*schema.ToolInfo, error) { return t.info, nil }

// InvokableRun lets the service run a call.
func (t *serviceTool) InvokableRun(ctx context.Context, arguments string, _ ...tool.Option) (string, error) {
	session, err := sessionOf(ctx, t.session)
	if err != nil {
		return "", err
	}
	call := wireCall{ID: compose.GetToolCallID(ctx), Type: "function"}
	call.Function.Name, call.Function.Arguments = t.info.Name, arguments
	result, err := session.RunTool(ctx, call)
	var failed *palimpsest.Error
	if ctx.Err() == nil && errors.As(err, &failed) {
		// An error of one call must not discard the results of the other tools.
		return failed.Error(), nil
	}
	if err != nil {
		return "", err
	}
	var message struct{ Content string }
	err = json.Unmarshal(result, &message)
	return message.Content, err
}

// toolsToWire returns the definitions of the agent's tools, whose tokens the service counts.
func toolsToWire(tools []*schema.ToolInfo) ([]any, error) {
	definitions := make([]any, len(tools))
	for index, info := range tools {
		parameters, err := info.ParamsOneOf.ToJSONSchema()
		if err != nil {
			return nil, err
		}
		function := map[string]any{"name": info.Name, "description": info.Desc, "parameters": parameters}
		if parameters == nil {
			delete(function, "parameters")
		}
		definitions[index] = map[string]any{"type": "function", "function": function}
	}
	return definitions, nil
}
