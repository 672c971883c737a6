package eino

import (
	"context"
	"errors"

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
	return send(ctx, m, m.inner.Generate, (*calls).ofMessage, conversation, options)
}

// Stream does the same as [Model.Generate], with the stream of the inner model.
func (m *Model) Stream(
	ctx context.Context, conversation []*schema.Message, options ...model.Option,
) (*schema.StreamReader[*schema.Message], error) {
	return send(ctx, m, m.inner.Stream, (*calls).ofStream, conversation, options)
}

// IsCallbacksEnabled returns true if the inner model runs the callbacks of eino itself.
func (m *Model) IsCallbacksEnabled() bool { return components.IsCallbacksEnabled(m.inner) }

// GetType returns the name of the component.
func (m *Model) GetType() string { return "Palimpsest" }

type endpoint[Reply any] func(context.Context, []*schema.Message, ...model.Option) (Reply, error)

func send[Reply any](
	ctx context.Context, m *Model, call endpoint[Reply], assign func(*calls, Reply) Reply,
	conversation []*schema.Message, options []model.Option,
) (Reply, error) {
	var none Reply
	view, calls, err := m.view(ctx, conversation, options)
	if err != nil {
		return none, err
	}
	reply, err := call(ctx, view, options...)
	if rejection := err; palimpsest.IsTooLong(rejection) {
		view, calls, err = m.view(ctx, conversation, options, palimpsest.WithTooLong(rejection))
		var failed *palimpsest.Error
		if errors.As(err, &failed) && failed.Reason == "PROMPT_TOO_LONG" {
			// No level can shorten the view. The error of the provider states the limit, which that of the service lacks.
			return none, errors.Join(rejection, err)
		}
		if err != nil {
			return none, err
		}
		reply, err = call(ctx, view, options...)
	}
	if err != nil {
		return reply, err
	}
	return assign(calls, reply), nil
}

// calls assigns the calls in a reply to the view, so that they read the session that took the conversation.
type calls struct {
	session *palimpsest.Session
	view    *palimpsest.View
}

func (c *calls) ofMessage(message *schema.Message) *schema.Message {
	for _, call := range message.ToolCalls {
		if call.ID != "" {
			c.session.AssignCalls(c.view, call.ID)
		}
	}
	return message
}

func (c *calls) ofStream(stream *schema.StreamReader[*schema.Message]) *schema.StreamReader[*schema.Message] {
	return schema.StreamReaderWithConvert(stream, func(chunk *schema.Message) (*schema.Message, error) {
		return c.ofMessage(chunk), nil
	})
}

// view syncs the conversation and returns the messages to send.
func (m *Model) view(
	ctx context.Context, conversation []*schema.Message, given []model.Option, options ...palimpsest.SyncOption,
) ([]*schema.Message, *calls, error) {
	session, err := sessionOf(ctx, m.session)
	if err != nil {
		return nil, nil, err
	}
	common := model.GetCommonOptions(&model.Options{Model: &m.name, Tools: m.tools}, given...)
	tools, err := toolsToWire(common.Tools)
	if err != nil {
		return nil, nil, err
	}
	array, err := toWire(conversation)
	if err != nil {
		return nil, nil, err
	}
	body := map[string]any{"model": *common.Model, "messages": array.messages, "tools": tools}
	options = append(options, palimpsest.WithFormat(palimpsest.OpenAIChat))
	if response := lastResponse(conversation, array.messages, *common.Model); response != nil {
		options = append(options, palimpsest.WithParameter("last_response", response))
	}
	view, err := session.Sync(ctx, body, options...)
	if err != nil {
		return nil, nil, err
	}
	if !view.Sendable {
		return nil, nil, &palimpsest.NotSendableError{Reason: view.NotSendableReason}
	}
	messages, err := array.fromWire(view.Messages)
	return messages, &calls{session, view}, err
}
