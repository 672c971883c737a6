// Package eino lets agents of the framework eino use a session of Palimpsest.
//
// [NewModel] wraps the chat model of an agent, and [Tools] returns the tools of the service:
//
//	chatModel = eino.NewModel(chatModel, "gpt-5", session)
//	tools, err := eino.Tools(ctx, session)
//
// The agent keeps the whole conversation in its state. Each model call gets the view of the session.
package eino
