// Package eino lets agents of the framework eino use a session of Palimpsest.
//
// [NewChatModelAgent] replaces the constructor of the ADK:
//
//	session := eino.NewSession("demo", "eino-1")
//	agent, err := eino.NewChatModelAgent(ctx, session, "gpt-5", &adk.ChatModelAgentConfig{…})
//
// For other agents and for graphs, [NewModel] wraps the chat model, and [Tools] returns the tools of the service:
//
//	chatModel = eino.NewModel(chatModel, "gpt-5", session)
//	tools, err := eino.Tools(ctx, session)
//
// The agent keeps the whole conversation in its state. Each model call gets the view of the session.
package eino
