package palimpsest

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
)

// View is the reply to a sync.
type View struct {
	*Reply
	// Messages are the messages to send to the model instead of those of the body.
	Messages []json.RawMessage
	body     *body
}

// Request returns the body with the messages of the view: the request to send. It fails with a [NotSendableError] if
// the view must not be sent.
func (v *View) Request() (json.RawMessage, error) {
	if !v.Sendable {
		return nil, &NotSendableError{Reason: v.NotSendableReason}
	}
	request := maps.Clone(v.body.fields)
	var err error
	if request[v.body.array], err = encode(v.Messages); err != nil {
		return nil, err
	}
	if len(v.System) > 0 {
		if request["system"], err = encode(append(blocksOf(request["system"]), v.System...)); err != nil {
			return nil, err
		}
	}
	if err := mergeBreakpoints(request, v.CacheBreakpoints); err != nil {
		return nil, err
	}
	return encode(request)
}

// Decode decodes the request to send into a pointer, for example to the parameters of an SDK.
func (v *View) Decode(request any) error {
	data, err := v.Request()
	if err != nil {
		return err
	}
	return json.Unmarshal(data, request)
}

// mergeBreakpoints sets the cache breakpoints of a reply in a request.
func mergeBreakpoints(request fields, breakpoints []CacheBreakpoint) error {
	messages := request.list("messages")
	for _, breakpoint := range breakpoints {
		var err error
		if breakpoint.Position == nil {
			request["system"], err = mergeBlock(request["system"], breakpoint.SystemBlockIndex, breakpoint.Merge)
		} else if index := breakpoint.Position.MessageIndex; index < len(messages) {
			messages[index], err = mergeMessage(messages[index], breakpoint.Position.BlockIndex, breakpoint.Merge)
		}
		if err != nil {
			return err
		}
	}
	if len(breakpoints) == 0 {
		return nil
	}
	var err error
	request["messages"], err = encode(messages)
	return err
}

func mergeMessage(message json.RawMessage, index int, merge map[string]json.RawMessage) (json.RawMessage, error) {
	object, err := fieldsOf(message)
	if err != nil {
		return nil, err
	}
	if object["content"], err = mergeBlock(object["content"], index, merge); err != nil {
		return nil, err
	}
	return encode(object)
}

func mergeBlock(content json.RawMessage, index int, merge map[string]json.RawMessage) (json.RawMessage, error) {
	blocks := blocksOf(content)
	if index >= len(blocks) {
		return nil, errors.New("palimpsest: a cache breakpoint has no block")
	}
	block, err := fieldsOf(blocks[index])
	if err != nil {
		return nil, err
	}
	maps.Copy(block, merge)
	if blocks[index], err = encode(block); err != nil {
		return nil, err
	}
	return encode(blocks)
}

// blocksOf returns content as a list of blocks.
func blocksOf(content json.RawMessage) []json.RawMessage {
	object := fields{"content": content}
	if text := object.text("content"); text != "" {
		block, _ := encode(map[string]any{"type": "text", "text": text})
		return []json.RawMessage{block}
	}
	return object.list("content")
}

// heldView is the last received view. The next reply contains only the messages after the first ones that stay.
type heldView struct {
	session  string
	etag     string
	messages []json.RawMessage
}

// extended returns the array of a reply that is a delta. The system messages at the start of the caller's array are not
// part of the view.
func (h *heldView) extended(reply *Reply, added []json.RawMessage) ([]json.RawMessage, error) {
	if reply.KeepMessages == 0 {
		return added, nil
	}
	if h == nil || reply.Session != h.session || reply.KeepMessages > len(h.messages) {
		return nil, errors.New("palimpsest: the reply keeps messages that were not received")
	}
	return slices.Concat(h.messages[:reply.KeepMessages], added), nil
}
