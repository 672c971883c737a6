package palimpsest

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
)

// undoable are the events of the levels that change the view. A rewind by the array of the caller is none of them.
var undoable = []string{"content_snipped", "results_cleared", "spans_collapsed", "compacted"}

// RestoreOption is an option of [Session.Undo] and [Session.Restore].
type RestoreOption func(parameters map[string]any)

// WithForce restores a view that exceeds the limit of a request. Without it, the call fails with the reason
// RESTORE_OVER_BLOCK.
func WithForce() RestoreOption { return func(parameters map[string]any) { parameters["force"] = true } }

// Undo undoes the last compaction, collapse, clear or snip of the view. Another call undoes the one before. It returns
// nil if nothing can be undone.
func (s *Session) Undo(ctx context.Context, options ...RestoreOption) (*Restored, error) {
	query := url.Values{"descending": {"true"}, "kinds": append(slices.Clone(undoable), "context_restored")}
	// The events after this revision are undone already. Events arrive latest first.
	below := int64(-1)
	for event, err := range pages[Event](ctx, s.transport, s.get("/events", query), "events") {
		if err != nil {
			return nil, err
		}
		if below >= 0 && event.Revision > below {
			continue
		}
		if event.Kind != "context_restored" {
			return s.Restore(ctx, event.Revision-1, options...)
		}
		var content struct {
			ToRevision int64 `json:"to_revision"`
		}
		if err := json.Unmarshal(event.Content, &content); err != nil {
			return nil, err
		}
		below = content.ToRevision
	}
	return nil, nil
}
