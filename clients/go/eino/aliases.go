package eino

import (
	"crypto/sha256"
	"fmt"
	"regexp"
)

// acceptedID matches the call ids that the service does not replace in a view of Chat Completions.
var acceptedID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,40}$`)

// aliases replaces the call ids that the service would replace: illegal ones, and those of several calls. Some providers
// number the calls of each response from 0. An alias depends on the messages before it only, so each sync has the same.
type aliases struct {
	// counts has the number of calls with an id.
	counts map[string]int
	// open has the aliases of the calls of the last response with an id that have no result yet.
	open map[string][]string
	// last has the alias of the last call with an id.
	last map[string]string
}

func newAliases() *aliases {
	return &aliases{counts: map[string]int{}, open: map[string][]string{}, last: map[string]string{}}
}

// apply replaces the ids in a message. Results follow the order of their calls.
func (a *aliases) apply(message *wireMessage) {
	for _, call := range message.ToolCalls {
		delete(a.open, call.ID)
	}
	for index := range message.ToolCalls {
		call := &message.ToolCalls[index]
		id := call.ID
		call.ID = aliasOf(id, a.counts[id])
		a.counts[id]++
		a.open[id] = append(a.open[id], call.ID)
		a.last[id] = call.ID
	}
	if message.Role != "tool" {
		return
	}
	id := message.ToolCallID
	if open := a.open[id]; len(open) > 0 {
		message.ToolCallID, a.open[id] = open[0], open[1:]
	} else if last, known := a.last[id]; known {
		message.ToolCallID = last
	}
}

// aliasOf returns the id to sync for a call. `earlier` is the number of earlier calls with the same id.
func aliasOf(id string, earlier int) string {
	if earlier == 0 && acceptedID.MatchString(id) {
		return id
	}
	digest := sha256.Sum256(fmt.Appendf(nil, "%d %s", earlier, id))
	return fmt.Sprintf("call_%x", digest[:16])
}
