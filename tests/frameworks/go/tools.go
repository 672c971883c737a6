package main

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/schema"
)

// harnessTool is a tool of the task, which the harness runs.
type harnessTool struct {
	harness *harness
	info    *schema.ToolInfo
}

// harnessTools returns the tools of the task, by name: their order must not change between runs.
func harnessTools(h *harness, given map[string]map[string]string) []tool.BaseTool {
	var tools []tool.BaseTool
	for _, name := range slices.Sorted(maps.Keys(given)) {
		parameters := map[string]*schema.ParameterInfo{}
		for argument, description := range given[name] {
			parameters[argument] = &schema.ParameterInfo{Type: schema.String, Desc: description, Required: true}
		}
		tools = append(tools, &harnessTool{h, &schema.ToolInfo{
			Name: name, Desc: "Runs " + name + ".", ParamsOneOf: schema.NewParamsOneOfByParams(parameters),
		}})
	}
	return tools
}

// Info returns the definition of the tool.
func (t *harnessTool) Info(context.Context) (*schema.ToolInfo, error) { return t.info, nil }

// InvokableRun lets the harness run a call.
func (t *harnessTool) InvokableRun(_ context.Context, arguments string, _ ...tool.Option) (string, error) {
	return t.harness.call(t.info.Name, json.RawMessage(arguments))
}
