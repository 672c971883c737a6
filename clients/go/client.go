package palimpsest

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"
)

const defaultURL = "http://127.0.0.1:50051"

// Client is a connection to the service. Goroutines can share it.
type Client struct {
	transport transport
}

// ClientOption is a setting of a client.
type ClientOption func(*transport)

// WithURL sets the base URL of the server, or its host:port. Default: PALIMPSEST_URL, or else http://127.0.0.1:50051.
func WithURL(url string) ClientOption { return func(t *transport) { t.url = url } }

// WithAPIKey sets the API key or JWT. Default: PALIMPSEST_API_KEY.
func WithAPIKey(key string) ClientOption { return func(t *transport) { t.key = key } }

// WithHTTPClient sets the HTTP client, for example for certificates or a proxy. Its timeout should be 0, because calls
// have deadlines of their own and a watch has none. Default: [http.DefaultClient].
func WithHTTPClient(client *http.Client) ClientOption {
	return func(t *transport) { t.http = client }
}

// WithTimeout sets the deadline of each call with its retries, if its context has no earlier one. Default: 2 minutes.
func WithTimeout(timeout time.Duration) ClientOption {
	return func(t *transport) { t.timeout = timeout }
}

// WithMaxRetries sets the maximum number of retries of a call. Default: 8.
func WithMaxRetries(retries int) ClientOption { return func(t *transport) { t.maxRetries = retries } }

// WithLogger sets the log for the warnings of views. Default: [slog.Default].
func WithLogger(logger *slog.Logger) ClientOption {
	return func(t *transport) { t.warnings.logger = logger }
}

// NewClient returns a client. It makes no call.
func NewClient(options ...ClientOption) *Client {
	t := transport{
		url:        cmp.Or(os.Getenv("PALIMPSEST_URL"), defaultURL),
		key:        os.Getenv("PALIMPSEST_API_KEY"),
		http:       http.DefaultClient,
		timeout:    2 * time.Minute,
		maxRetries: 8,
		warnings:   &warningLog{},
	}
	for _, option := range options {
		option(&t)
	}
	t.key = strings.TrimSpace(t.key)
	if url, err := baseURL(t.url); err != nil {
		t.invalid = err
	} else {
		t.url = url
		t.invalid = checkKey(t.key)
	}
	return &Client{transport: t}
}

// hostAndPort matches an address without a scheme.
var hostAndPort = regexp.MustCompile(`^[^/\s]+:\d+(/|$)`)

// baseURL returns a URL of a server without the path of the API, which each call adds.
func baseURL(given string) (string, error) {
	base := strings.TrimRight(strings.TrimSpace(given), "/")
	base = strings.TrimRight(strings.TrimSuffix(base, "/v1"), "/")
	scheme, _, hasScheme := strings.Cut(base, "://")
	switch {
	case hasScheme && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https")):
		return base, nil
	case !hasScheme && hostAndPort.MatchString(base):
		// The command line has the same default scheme.
		return "http://" + base, nil
	}
	return "", invalid("the URL of the server must begin with http:// or https://, or be host:port, not %q", given)
}

// checkKey returns an error if a key has characters that no key has. It does not contain the key.
func checkKey(key string) error {
	if strings.ContainsFunc(key, func(char rune) bool { return char <= ' ' || char > '~' }) {
		return invalid("the API key contains a character that no key has, such as a line break: " +
			"check WithAPIKey or PALIMPSEST_API_KEY")
	}
	return nil
}

// idPattern matches the ids of projects and sessions, except for their length.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// checkID returns an error if an id is invalid. Such an id could name the path of another resource.
func checkID(kind, id string, limit int) error {
	if idPattern.MatchString(id) && len(id) <= limit {
		return nil
	}
	return invalid("the id %q of a %s is invalid: use at most %d letters, digits, \"-\", \"_\" and \".\", "+
		"and begin with a letter or a digit", id, kind, limit)
}

func checkProject(project string) error { return checkID("project", project, 64) }

func checkSession(session string) error { return checkID("session", session, 128) }

// with returns a transport whose calls fail with an error, if there is one. Settings and ids are checked without a
// call, but only calls return errors.
func (t transport) with(errs ...error) *transport {
	for _, err := range errs {
		if t.invalid == nil {
			t.invalid = err
		}
	}
	return &t
}

// Session returns a session of a project. It makes no call: the first sync creates the session. The options are those
// of each sync of the session. Both ids begin with a letter or a digit, and contain letters, digits, -, _ and . only.
// The id of a project has at most 64 characters, and the id of a session at most 128.
func (c *Client) Session(project, session string, options ...SyncOption) *Session {
	return &Session{
		transport: c.transport.with(checkProject(project), checkSession(session)),
		project:   project,
		id:        session,
		path:      sessionPath(project, session),
		options:   options,
		tools:     map[Format][]Tool{},
		ownNames:  map[string]bool{},
	}
}

// Sessions yields the sessions of a project, latest first. The query has parameters of ListSessions, or is nil.
func (c *Client) Sessions(ctx context.Context, project string, query url.Values) iter.Seq2[*SessionInfo, error] {
	list := request{method: http.MethodGet, path: "/projects/" + url.PathEscape(project) + "/sessions", query: query}
	return pages[SessionInfo](ctx, c.transport.with(checkProject(project)), list, "sessions")
}

func sessionPath(project, session string) string {
	return "/projects/" + url.PathEscape(project) + "/sessions/" + url.PathEscape(session)
}
