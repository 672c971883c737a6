// Package palimpsest is the client of Palimpsest, the service that owns the context of LLM agents.
//
// An agent sends its whole conversation before each model call, and sends the returned view to the model. With an SDK
// of Anthropic or OpenAI, [Session.Middleware] does both for each request of the SDK:
//
//	session := palimpsest.NewClient().Session("demo", "task-42")
//	client := anthropic.NewClient(option.WithMiddleware(session.Middleware()))
//
// [Answer] then runs the tool calls of a response and appends the results to the conversation. [Session.Sync] is the
// same for programs without an SDK. The package has no dependencies.
package palimpsest
