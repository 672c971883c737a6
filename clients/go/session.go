package palimpsest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Session is one conversation of one agent. It is created with the first sync. Goroutines can share it.
type Session struct {
	transport   *transport
	project, id string
	path        string
	options     []SyncOption

	mutex    sync.Mutex
	tools    map[Format][]Tool
	ownNames map[string]bool
	// last is the last response of the model. Its usage is sent with the next sync.
	last *modelResponse
	held *heldView
	// toolPath is the path of the session that took the last array with tools: this one, or a lane of it.
	toolPath  string
	callPaths callPaths
}

// Name returns the resource name, projects/{project}/sessions/{session}.
func (s *Session) Name() string { return fmt.Sprintf("projects/%s/sessions/%s", s.project, s.id) }

// Sync sends the body of the next model request and returns the view. The body has the whole conversation. It is JSON
// text, the parameters of an SDK, or any value that encodes as such a body. A repeat is safe.
func (s *Session) Sync(ctx context.Context, body any, options ...SyncOption) (*View, error) {
	chosen := optionsOf(s.options, options)
	parsed, err := bodyOf(body, chosen.format)
	if err != nil {
		return nil, err
	}
	return s.sync(ctx, parsed, chosen)
}

func (s *Session) sync(ctx context.Context, body *body, options syncOptions) (*View, error) {
	s.mutex.Lock()
	last, held := s.last, s.held
	s.mutex.Unlock()
	etag := ""
	if held != nil {
		etag = held.etag
	}
	sent := body.synced()
	sent["palimpsest"] = body.parameters(last, etag, options)
	attempts := s.transport.attempts(ctx)
	var answer json.RawMessage
	call := request{method: http.MethodPost, path: s.path + ":sync", body: sent}
	if err := s.transport.callWith(ctx, attempts, call, &answer); err != nil {
		return nil, err
	}
	reply, err := decode[Reply](answer)
	if err != nil {
		return nil, err
	}
	path := pathOf(reply.Session)
	added := reply.Messages
	// A whole reply begins with the system messages of the caller, which are not part of the view. A delta lacks them.
	if etag == "" && !reply.ViewOmitted {
		added = added[reply.LeadMessages:]
	}
	if reply.ViewOmitted {
		if added, err = s.readView(ctx, attempts, path, reply); err != nil {
			return nil, err
		}
	}
	messages, err := held.extended(reply, added)
	if err != nil {
		return nil, err
	}
	s.transport.warnings.log(reply)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.held = &heldView{session: reply.Session, etag: reply.ETag, messages: messages}
	if s.last == last {
		s.last = nil
	}
	// A side request has no tools, and the calls of a conversation in a lane read the results of the lane.
	if len(body.fields.list("tools")) > 0 {
		s.toolPath = path
	}
	lead := body.fields.list(body.array)[:reply.LeadMessages]
	return &View{Reply: reply, Messages: slices.Concat(lead, messages), body: body}, nil
}

// readView reads the messages that a reply omits because of its size, with the other attempts of the sync.
func (s *Session) readView(
	ctx context.Context, attempts *attempts, path string, reply *Reply,
) ([]json.RawMessage, error) {
	body := map[string]any{"etag": reply.ETag, "skip_messages": reply.KeepMessages}
	stream := request{method: http.MethodPost, path: path + ":stream", body: body}
	for {
		messages, err := s.readViewOnce(ctx, stream, attempts.deadline)
		if err == nil {
			return messages, nil
		}
		if err := attempts.wait(ctx, err); err != nil {
			return nil, err
		}
	}
}

func (s *Session) readViewOnce(ctx context.Context, stream request, deadline time.Time) ([]json.RawMessage, error) {
	var messages []json.RawMessage
	for line, err := range s.transport.lines(ctx, stream, deadline) {
		if err != nil {
			return nil, err
		}
		var chunk struct {
			Messages []json.RawMessage
			Last     bool
		}
		if err := json.Unmarshal(line, &chunk); err != nil {
			return nil, err
		}
		messages = append(messages, chunk.Messages...)
		if chunk.Last {
			return messages, nil
		}
	}
	return nil, &Error{Code: Unavailable, Message: "the stream ended before the last message of the view"}
}

// Tools returns the tools of the service, for the tools of the model request. The model reads stored results and the
// transcript with them. They are read once per format.
func (s *Session) Tools(ctx context.Context, format Format) ([]Tool, error) {
	s.mutex.Lock()
	tools, known := s.tools[format]
	s.mutex.Unlock()
	if known {
		return tools, nil
	}
	var reply struct{ Tools []Tool }
	err := s.transport.call(ctx, s.get("/tools", url.Values{"format": {string(format)}}), &reply)
	if err != nil {
		return nil, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.tools[format] = reply.Tools
	for _, tool := range reply.Tools {
		s.ownNames[tool.Name] = true
	}
	return reply.Tools, nil
}

// IsOwn returns true if a call of the model names a tool of the service. The names are known after [Session.Tools],
// which a request with these tools needs anyway. The call is that of an SDK, or its JSON.
func (s *Session) IsOwn(call any) bool {
	parsed, err := callOf(call)
	return err == nil && s.isOwnName(parsed.name)
}

func (s *Session) isOwnName(name string) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.ownNames[name]
}

// RunTool runs a call of a tool of the service. It returns the result to append, in the format of the call.
func (s *Session) RunTool(ctx context.Context, call any) (json.RawMessage, error) {
	parsed, err := callOf(call)
	if err != nil {
		return nil, err
	}
	return s.runOwn(ctx, parsed)
}

func (s *Session) runOwn(ctx context.Context, call *toolCall) (json.RawMessage, error) {
	path := s.pathOfCall(call.id)
	body := map[string]any{
		"request_id": rand.Text(),
		"payload":    map[string]any{"format": call.format, "json": call.json},
	}
	var reply struct {
		Result json.RawMessage `json:"tool_result"`
	}
	err := s.transport.call(ctx, request{method: http.MethodPost, path: path + ":callTool", body: body}, &reply)
	return reply.Result, err
}

// Compact compacts the session now. The parameters are fields of CompactRequest, or nil.
func (s *Session) Compact(ctx context.Context, parameters map[string]any) (*Compaction, error) {
	return send[Compaction](ctx, s, s.change(http.MethodPost, ":compact", parameters))
}

// Restore restores the view of a revision.
func (s *Session) Restore(ctx context.Context, revision int64, options ...RestoreOption) (*Restored, error) {
	parameters := map[string]any{"to_revision": revision}
	for _, option := range options {
		option(parameters)
	}
	return send[Restored](ctx, s, s.change(http.MethodPost, ":restore", parameters))
}

// Get returns the session.
func (s *Session) Get(ctx context.Context) (*SessionInfo, error) {
	return s.info(ctx, s.get("", nil))
}

// Create creates the session with fields such as policy_overrides. It is not needed for the default policy.
func (s *Session) Create(ctx context.Context, fields map[string]any) (*SessionInfo, error) {
	path := strings.TrimSuffix(s.path, "/"+url.PathEscape(s.id))
	body := map[string]any{"request_id": rand.Text(), "session_id": s.id, "session": fields}
	return s.info(ctx, request{method: http.MethodPost, path: path, body: body})
}

// Update changes fields of the session, such as title, attributes or policy_overrides.
func (s *Session) Update(ctx context.Context, fields map[string]any) (*SessionInfo, error) {
	return s.info(ctx, s.change(http.MethodPatch, "", map[string]any{"session": fields}))
}

// Delete deletes the session with all its data. A missing session is no error.
func (s *Session) Delete(ctx context.Context) error {
	query := url.Values{"allow_missing": {"true"}}
	var reply fields
	return s.transport.call(ctx, request{method: http.MethodDelete, path: s.path, query: query}, &reply)
}

// Memory returns the session memory, the running summary of the session.
func (s *Session) Memory(ctx context.Context) (*Memory, error) {
	var reply struct{ Memory json.RawMessage }
	if err := s.transport.call(ctx, s.get("/memory", nil), &reply); err != nil {
		return nil, err
	}
	return decode[Memory](reply.Memory)
}

// Messages yields the messages of the transcript, also those that the view no longer shows. The query has parameters of
// ListMessages, such as format or descending, or is nil.
func (s *Session) Messages(ctx context.Context, query url.Values) iter.Seq2[*Message, error] {
	return pages[Message](ctx, s.transport, s.get("/messages", query), "messages")
}

// Search yields the places of the transcript with a text.
func (s *Session) Search(ctx context.Context, text string) iter.Seq2[*SearchHit, error] {
	return s.search(ctx, map[string]any{"literal": text})
}

// SearchRegexp yields the places of the transcript with matches of a regular expression in the syntax of RE2.
func (s *Session) SearchRegexp(ctx context.Context, expression string) iter.Seq2[*SearchHit, error] {
	return s.search(ctx, map[string]any{"regex": expression})
}

func (s *Session) search(ctx context.Context, pattern map[string]any) iter.Seq2[*SearchHit, error] {
	body := map[string]any{"pattern": pattern}
	list := request{method: http.MethodPost, path: s.path + "/messages:search", body: body}
	return pages[SearchHit](ctx, s.transport, list, "hits")
}

// Events yields the recorded events of some kinds, or of all kinds. The first one has the revision 1.
func (s *Session) Events(ctx context.Context, kinds ...string) iter.Seq2[*Event, error] {
	return pages[Event](ctx, s.transport, s.get("/events", url.Values{"kinds": kinds}), "events")
}

func (s *Session) get(suffix string, query url.Values) request {
	return request{method: http.MethodGet, path: s.path + suffix, query: query}
}

// change returns a change. Its request_id makes retries safe.
func (s *Session) change(method, suffix string, parameters map[string]any) request {
	body := map[string]any{"request_id": rand.Text()}
	for name, value := range parameters {
		body[name] = value
	}
	return request{method: method, path: s.path + suffix, body: body}
}

func (s *Session) info(ctx context.Context, r request) (*SessionInfo, error) {
	var reply struct{ Session json.RawMessage }
	if err := s.transport.call(ctx, r, &reply); err != nil {
		return nil, err
	}
	return decode[SessionInfo](reply.Session)
}

// send sends a request and decodes the whole answer as a record.
func send[T any, P record[T]](ctx context.Context, s *Session, r request) (*T, error) {
	var answer json.RawMessage
	if err := s.transport.call(ctx, r, &answer); err != nil {
		return nil, err
	}
	return decode[T, P](answer)
}

// pathOf returns the path of a resource name.
func pathOf(name string) string {
	parts := strings.SplitN(name, "/", 4)
	if len(parts) != 4 {
		return "/" + name
	}
	return sessionPath(parts[1], parts[3])
}
