package palimpsest

import (
	"encoding/json"
	"maps"
)

// syncOptions are the options of one sync.
type syncOptions struct {
	format     Format
	readBack   bool
	parameters map[string]any
}

// SyncOption is an option of a sync, of all syncs of a session, or of all model requests of a middleware.
type SyncOption func(*syncOptions)

// WithFormat sets the format of the body. Default: the service detects the format of each array.
func WithFormat(format Format) SyncOption { return func(o *syncOptions) { o.format = format } }

// WithParameter sets a field of SyncContextRequest, such as compaction_mode. The value is encoded as JSON.
func WithParameter(name string, value any) SyncOption {
	return func(o *syncOptions) { o.parameters[name] = value }
}

// WithCacheBreakpoints sets cache breakpoints in requests to Anthropic.
func WithCacheBreakpoints() SyncOption { return WithParameter("cache_breakpoints", struct{}{}) }

// WithTooLong reports the error with which the provider rejected the last view as too long. The new view is shorter.
func WithTooLong(err error) SyncOption { return withTooLongText(err.Error()) }

func withTooLongText(text string) SyncOption {
	return WithParameter("prompt_too_long", map[string]string{"error_text": text})
}

// WithoutReadBack leaves out the tools of the service. For [Session.Middleware] and [Session.Transport] only.
func WithoutReadBack() SyncOption { return func(o *syncOptions) { o.readBack = false } }

func optionsOf(lists ...[]SyncOption) syncOptions {
	options := syncOptions{readBack: true, parameters: map[string]any{}}
	for _, list := range lists {
		for _, option := range list {
			option(&options)
		}
	}
	return options
}

// parameters returns the field `palimpsest` of a sync. Given parameters override those that the package sets.
func (b *body) parameters(last *modelResponse, etag string, options syncOptions) map[string]any {
	values := map[string]any{}
	if b.format != "" {
		values["format"] = b.format
	}
	if target := b.target(); target != nil {
		values["target"] = target
	}
	if last != nil {
		values["last_response"] = map[string]any{"format": last.format, "json": json.RawMessage(last.json)}
	}
	if etag != "" {
		values["known_etag"] = etag
	}
	maps.Copy(values, options.parameters)
	return values
}
