package eino

import (
	"context"
	"errors"

	palimpsest "github.com/palimpsest-dev/palimpsest/clients/go"
)

// NewSession returns a session of a project, with a new client that has the default settings of [palimpsest.NewClient].
// It makes no call: the first model call creates the session.
func NewSession(project, session string) *palimpsest.Session {
	return palimpsest.NewClient().Session(project, session)
}

type sessionKey struct{}

// WithSession returns a context whose runs use a session. One agent can serve many conversations: give each run the
// session of its conversation.
func WithSession(ctx context.Context, session *palimpsest.Session) context.Context {
	return context.WithValue(ctx, sessionKey{}, session)
}

func sessionOf(ctx context.Context, fallback *palimpsest.Session) (*palimpsest.Session, error) {
	if session, ok := ctx.Value(sessionKey{}).(*palimpsest.Session); ok {
		return session, nil
	}
	if fallback == nil {
		return nil, errors.New("palimpsest: the context has no session: use WithSession")
	}
	return fallback, nil
}
