package palimpsest

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"os"
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

// WithURL sets the base URL of the server. Default: PALIMPSEST_URL, or else http://127.0.0.1:50051.
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
	t.url = strings.TrimRight(t.url, "/") + "/v1"
	return &Client{transport: t}
}

// Session returns a session of a project. It makes no call: the first sync creates the session. The options are those
// of each sync of the session.
func (c *Client) Session(project, session string, options ...SyncOption) *Session {
	return &Session{
		transport: &c.transport,
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
	return pages[SessionInfo](ctx, &c.transport, list, "sessions")
}

func sessionPath(project, session string) string {
	return "/projects/" + url.PathEscape(project) + "/sessions/" + url.PathEscape(session)
}
