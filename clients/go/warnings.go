package palimpsest

import (
	"log/slog"
	"sync"
)

// maxLogged is the maximum number of warnings that are remembered as logged.
const maxLogged = 1_024

// warningLog logs the warnings of the views of one client, each code once per session.
type warningLog struct {
	logger *slog.Logger

	mutex  sync.Mutex
	logged map[loggedWarning]bool
	// order has the keys of logged. The oldest is first, and is forgotten first.
	order []loggedWarning
}

type loggedWarning struct{ session, code string }

// log logs the warnings of a reply that were not logged for its session.
func (l *warningLog) log(reply *Reply) {
	for _, warning := range reply.Warnings {
		if l.isNew(loggedWarning{reply.Session, warning.Code}) {
			logger := l.logger
			if logger == nil {
				logger = slog.Default()
			}
			logger.Warn("palimpsest: "+warning.Detail, "code", warning.Code, "session", reply.Session)
		}
	}
}

func (l *warningLog) isNew(key loggedWarning) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.logged[key] {
		return false
	}
	if len(l.order) == maxLogged {
		delete(l.logged, l.order[0])
		l.order = l.order[1:]
	}
	if l.logged == nil {
		l.logged = map[loggedWarning]bool{}
	}
	l.logged[key] = true
	l.order = append(l.order, key)
	return true
}
