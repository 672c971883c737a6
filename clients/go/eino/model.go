package eino

import (
	"context"

	"github.com/cloudwego/eino/components"
	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/schema"

	palimpsest "github.com/palimpsest-dev/palimpsest/clients/go"
)

// Model is a chat model that gets the view of a session. The agent and its state keep the whole conversation.
type Model struct {
	inner   model.ToolCallingChatModel
	name    string
	session *palimpsest.Session
	tools   []*schema.ToolInfo
}

// NewModel returns a chat model that syncs the conversation before each call of the inner model. `name` is the name of
// the model, which decides the size of its context window. The session of the context replaces the given session, which
// can be nil then: see [WithSession].
func NewModel(inner model.ToolCallingChatModel, name string, session *palimpsest.Session) *Model {
	return &Model{inner: inner, name: name, session: session}
}

// WithTools returns the model with tools.
func (m *Model) WithTools(tools []*schema.ToolInfo) (model.ToolCallingChatModel, error) {
	inner, err := m.inner.WithTools(tools)
	if err != nil {
		return nil, err
	}
	return &Model{inner: inner, name: m.name, session: m.session, tools: tools}, nil
}

// Generate syncs the conversation and calls the inner model with the view. A prompt that the provider rejects as too
// long is shortened once.
func (m *Model) Generate(
	ctx context.Context, conversation []*schema.Message, options ...model.Option,
) (*schema.Message, error) {
	return send(ctx, m, m.inner.Generate, conversation, options)
}

// Stream does the same as [Model.Generate], with the stream of the inner model.
func (m *Model) Stream(
	ctx context.Context, conversation []*schema.Message, options ...model.Option,
) (*schema.StreamReader[*schema.Message], error) {
	return send(ctx, m, m.inner.Stream, conversation, options)
}

// IsCallbacksEnabled returns true if the inner model runs the callbacks of eino itself.
func (m *Model) IsCallbacksEnabled() bool { return components.IsCallbacksEnabled(m.inner) }

// GetType returns the name of the component.
func (m *Model) GetType() string { return "Palimpsest" }

type endpoint[Reply any] func(context.Context, []*schema.Message, ...model.Option) (Reply, error)

func send[Reply any](
	ctx context.Context, m *Model, call endpoint[Reply], conversation []*schema.Message, options []model.Option,
) (Reply, error) {
	var none Reply
	view, err := m.view(ctx, conversation, options)
	if err != nil {
		return none, err
	}
	reply, err := call(ctx, view, options...)
	if !palimpsest.IsTooLong(err) {
		return reply, err
	}
	if view, err = m.view(ctx, conversation, options, palimpsest.WithTooLong(err)); err != nil {
		return none, err
	}
	return call(ctx, view, options...)
}

// view syncs the conversation and returns the messages to send.
func (m *Model) view(
	ctx context.Context, conversation []*schema.Message, given []model.Option, options ...palimpsest.SyncOption,
) ([]*schema.Message, error) {
	session, err := sessionOf(ctx, m.session)
	if err != nil {
		return nil, err
	}
	common := model.GetCommonOptions(&model.Options{Model: &m.name, Tools: m.tools}, given...)
	tools, err := toolsToWire(common.Tools)
	if err != nil {
		return nil, err
	}
	array, err := toWire(conversation)
	if err != nil {
		return nil, err
	}
	body := map[string]any{"model": *common.Model, "messages": array.messages, "tools": tools}
	options = append(options, palimpsest.WithFormat(palimpsest.OpenAIChat))
	if response := lastResponse(conversation, array.messages, *common.Model); response != nil {
		options = append(options, palimpsest.WithParameter("last_response", response))
	}
	view, err := session.Sync(ctx, body, options...)
	if err != nil {
		return nil, err
	}
	if !view.Sendable {
		return nil, &palimpsest.NotSendableError{Reason: view.NotSendableReason}
	}
	return array.fromWire(view.Messages)
}
