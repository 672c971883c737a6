package palimpsest

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"
	"strconv"
	"time"
)

// Watch yields the events after a revision as they happen, without an end. 0 begins with the first event. After a lost
// connection, the watch resumes after the last event. It ends with the context, or with an error that cannot be
// retried.
func (s *Session) Watch(ctx context.Context, afterRevision int64, kinds ...string) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		position := afterRevision
		// A resumed stream can repeat an event. Two events of one kind have different revisions.
		latest := map[string]int64{}
		var retries *attempts
		for {
			failed := error(&Error{Code: Unavailable, Message: "the watch ended"})
			for element, err := range s.watchOnce(ctx, position, kinds) {
				if err != nil {
					failed = err
					break
				}
				retries, position = nil, element.Revision
				if element.Event == nil {
					continue
				}
				event, err := decode[Event](element.Event)
				if err == nil && event.Revision <= latest[event.Kind] {
					continue
				}
				if !yield(event, err) || err != nil {
					return
				}
				latest[event.Kind] = event.Revision
			}
			// Retries count from the first failure after an element.
			if retries == nil {
				retries = s.transport.attempts(ctx)
			}
			if err := retries.wait(ctx, failed); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// watchElement is one element of a watch. An element without an event only has a new revision.
type watchElement struct {
	Event    json.RawMessage
	Revision int64
}

// watchOnce yields the elements of one connection.
func (s *Session) watchOnce(ctx context.Context, after int64, kinds []string) iter.Seq2[watchElement, error] {
	return func(yield func(watchElement, error) bool) {
		query := url.Values{"after_revision": {strconv.FormatInt(after, 10)}, "kinds": kinds}
		for line, err := range s.transport.lines(ctx, s.get("/events:watch", query), time.Time{}) {
			var element watchElement
			if err == nil {
				err = json.Unmarshal(line, &element)
			}
			if !yield(element, err) || err != nil {
				return
			}
		}
	}
}
