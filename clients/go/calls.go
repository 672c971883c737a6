package palimpsest

import (
	"bytes"
	"io"
	"regexp"
)

const (
	// Responses contain other ids too, such as those of their items, so the limit is above the number of open calls.
	maxCallPaths = 1_024
	// The longest id with its name that is found at the boundary of two reads.
	maxIDBytes = 512
)

// callPaths has the path of the session that took the array of a request, by the ids of the calls in its response. It
// keeps the last calls only.
type callPaths struct {
	paths map[string]string
	ids   []string
}

func (c *callPaths) add(id, path string) {
	if c.paths == nil {
		c.paths = map[string]string{}
	}
	if _, known := c.paths[id]; !known {
		c.ids = append(c.ids, id)
	}
	c.paths[id] = path
	if len(c.ids) > maxCallPaths {
		delete(c.paths, c.ids[0])
		c.ids = c.ids[1:]
	}
}

// AssignCalls lets [Session.RunTool] read the session that took the array of a view, for the calls with these ids.
// [Session.Middleware] and [Session.Transport] do this for each response. A call with an unknown id reads the session
// that took the last array with tools. The last 1,024 ids are kept.
func (s *Session) AssignCalls(view *View, ids ...string) {
	path := pathOf(view.Session)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, id := range ids {
		s.callPaths.add(id, path)
	}
}

// pathOfCall returns the path of the session that a call reads.
func (s *Session) pathOfCall(id string) string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if path, known := s.callPaths.paths[id]; known {
		return path
	}
	if s.toolPath != "" {
		return s.toolPath
	}
	return s.path
}

// idInJSON matches ids in the JSON of a response or of the events of a stream. Quotes within a text are escaped.
var idInJSON = regexp.MustCompile(`"(?:call_)?id"\s*:\s*"([^"\\]+)"`)

// callReader reads the body of a response and assigns the ids in it to a view.
type callReader struct {
	io.ReadCloser
	session *Session
	view    *View
	// tail is the end of the bytes that were read before. An id can be divided.
	tail []byte
}

// Read reads from the body.
func (r *callReader) Read(buffer []byte) (int, error) {
	count, err := r.ReadCloser.Read(buffer)
	seen := append(r.tail, buffer[:count]...)
	for _, match := range idInJSON.FindAllSubmatch(seen, -1) {
		r.session.AssignCalls(r.view, string(match[1]))
	}
	r.tail = bytes.Clone(seen[max(len(seen)-maxIDBytes, 0):])
	return count, err
}
