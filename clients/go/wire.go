package palimpsest

import (
	"encoding/json"
	"time"
)

// Raw is the JSON of a value with all its fields.
type Raw struct{ raw json.RawMessage }

// RawJSON returns the JSON as the server sent it. The server's /openapi.json describes all fields.
func (r Raw) RawJSON() string { return string(r.raw) }

func (r *Raw) setRaw(data json.RawMessage) { r.raw = data }

// record is the pointer to a type of this file.
type record[T any] interface {
	*T
	setRaw(json.RawMessage)
}

func decode[T any, P record[T]](data json.RawMessage) (*T, error) {
	var value T
	P(&value).setRaw(data)
	return &value, json.Unmarshal(data, &value)
}

// Reply is the reply to a sync.
type Reply struct {
	Raw
	// Session is the resource name of the session that took the array: the named one, or a lane of it.
	Session string
	// Outcome is the relation of the array to the last one, such as extended or rewound.
	Outcome           string
	Sendable          bool
	NotSendableReason string `json:"not_sendable_reason"`
	ETag              string
	LeadMessages      int `json:"lead_messages"`
	KeepMessages      int `json:"keep_messages"`
	Revision          int64
	Epoch             int64
	Tokens            Tokens
	Budget            Budget
	Warnings          []Warning
	LevelReports      []LevelReport     `json:"level_reports"`
	CacheBreakpoints  []CacheBreakpoint `json:"cache_breakpoints"`

	Messages    []json.RawMessage
	System      []json.RawMessage
	ViewOmitted bool `json:"view_omitted"`
}

// Tokens is the token count of a model request.
type Tokens struct {
	Total   int64 `json:"total_tokens"`
	Method  string
	Removed int64 `json:"removed_tokens"`
}

// Budget is the used and free tokens of the context window.
type Budget struct {
	// State is normal, warning, critical or exhausted.
	State            string
	Model            string
	WindowTokens     int64   `json:"window_tokens"`
	UsedTokens       int64   `json:"used_tokens"`
	FreeTokens       int64   `json:"free_tokens"`
	RemainingTokens  int64   `json:"remaining_tokens"`
	RemainingPercent float64 `json:"remaining_percent"`
	CompactAtTokens  int64   `json:"compact_at_tokens"`
}

// Warning is a problem that did not fail the call.
type Warning struct {
	Code      string
	Detail    string
	MessageID string `json:"message_id"`
}

// LevelReport is the action of one level.
type LevelReport struct {
	Level      string
	Action     string
	SkipReason string `json:"skip_reason"`
	Effect     *Effect
}

// Effect is the tokens before and after an action of a level.
type Effect struct {
	Trigger      string
	BeforeTokens int64 `json:"before_tokens"`
	AfterTokens  int64 `json:"after_tokens"`
	FreedTokens  int64 `json:"freed_tokens"`
}

// CacheBreakpoint is a position for a cache breakpoint, and the fields to merge into its block.
type CacheBreakpoint struct {
	Position *struct {
		MessageIndex int `json:"message_index"`
		BlockIndex   int `json:"block_index"`
	}
	SystemBlockIndex int `json:"system_block_index"`
	Merge            map[string]json.RawMessage
}

// Tool is a tool of the service for the model.
type Tool struct {
	Name        string
	Description string
	InputSchema json.RawMessage `json:"input_schema"`
	// Definition is the tool in the format of the provider, for the tools of the model request.
	Definition json.RawMessage
}

// SessionInfo is the state of a session.
type SessionInfo struct {
	Raw
	Name       string
	Title      string
	State      string
	Revision   int64
	Epoch      int64
	CreateTime time.Time `json:"create_time"`
	UpdateTime time.Time `json:"update_time"`
	Attributes map[string]string
	Counts     map[string]int64
	Budget     Budget
}

// Compaction is the reply to a compaction.
type Compaction struct {
	Raw
	Compaction struct {
		ID       string `json:"compaction_id"`
		State    string
		Strategy string
		Summary  string
	}
	Tokens   Tokens
	Budget   Budget
	Revision int64
}

// Restored is the reply to a restored view.
type Restored struct {
	Raw
	Restored struct {
		ToRevision int64 `json:"to_revision"`
		Undone     []struct {
			Revision int64
			Kind     string
		}
	}
	Tokens   Tokens
	Budget   Budget
	Revision int64
}

// Memory is the session memory, the running summary of a session.
type Memory struct {
	Raw
	State   string
	Version int64
	Text    string
	Tokens  int64
	Running bool
}

// Message is a message of the transcript.
type Message struct {
	Raw
	ID       string
	Ordinal  int64
	Revision int64
	// Messages is the message in the requested format, usually one object.
	Messages   []json.RawMessage
	Visibility string
	TurnID     string `json:"turn_id"`
	Tokens     int64
}

// SearchHit is a place of the transcript with the searched text.
type SearchHit struct {
	Raw
	Ordinal    int64
	Role       string
	Visibility string
	Snippet    string
}

// Event is a recorded event of a session.
type Event struct {
	Raw
	Revision int64
	Time     time.Time
	Epoch    int64
	// Credential caused the event: "key" and the id of an API key, or the subject of a token.
	Credential string
	// Kind is the name of the field with the content, such as compacted or messages_appended.
	Kind string
	// Content is the JSON of this field.
	Content json.RawMessage
}

// UnmarshalJSON finds the kind: the field with the content.
func (e *Event) UnmarshalJSON(data []byte) error {
	type plain Event
	var object fields
	if err := json.Unmarshal(data, &object); err != nil {
		return err
	}
	if err := json.Unmarshal(data, (*plain)(e)); err != nil {
		return err
	}
	for name, value := range object {
		switch name {
		case "effect":
		default:
			// The content is an object. Fields that later servers add to all events are not.
			if len(value) > 0 && value[0] == '{' {
				e.Kind, e.Content = name, value
			}
		}
	}
	return nil
}
