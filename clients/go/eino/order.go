package eino

import (
	"slices"

	"github.com/cloudwego/eino/schema"
)

// inCallOrder returns the conversation with the results of each response in the order of their calls. The state of an
// agent has this order. Its events have the order in which the tools have finished, and a session would take the other
// order as another conversation.
func inCallOrder(conversation []*schema.Message) []*schema.Message {
	ordered := slices.Clone(conversation)
	for start := 0; start < len(ordered); start++ {
		calls := ordered[start].ToolCalls
		end := start + 1
		for end < len(ordered) && ordered[end].Role == schema.Tool {
			end++
		}
		slices.SortStableFunc(ordered[start+1:end], func(a, b *schema.Message) int {
			return position(calls, a.ToolCallID) - position(calls, b.ToolCallID)
		})
		start = end - 1
	}
	return ordered
}

func position(calls []schema.ToolCall, id string) int {
	index := slices.IndexFunc(calls, func(call schema.ToolCall) bool { return call.ID == id })
	if index < 0 {
		return len(calls)
	}
	return index
}
