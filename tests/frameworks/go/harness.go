package main

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// play is the description of the agent.
type play struct {
	Variant   string                       `json:"variant"`
	Model     string                       `json:"model"`
	URL       string                       `json:"url"`
	Key       string                       `json:"key"`
	MaxOutput int                          `json:"max_output"`
	Window    int                          `json:"window"`
	System    string                       `json:"system"`
	Tools     map[string]map[string]string `json:"tools"`
}

// request is an input of the user, or asks for the stored results.
type request struct {
	Ask    string `json:"ask"`
	Stored bool   `json:"stored"`
}

// line is a line for the harness.
type line map[string]any

// harness exchanges lines of JSON with the program that plays the task.
type harness struct {
	// mutex keeps a tool call and its result together: the agent reports used tokens while a tool runs.
	mutex   sync.Mutex
	decoder *json.Decoder
	encoder *json.Encoder
}

func newHarness(input io.Reader, output io.Writer) *harness {
	return &harness{decoder: json.NewDecoder(input), encoder: json.NewEncoder(output)}
}

func (h *harness) receive(message any) error { return h.decoder.Decode(message) }

func (h *harness) send(message line) error {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.encoder.Encode(message)
}

// call lets the harness run a tool.
func (h *harness) call(tool string, arguments json.RawMessage) (string, error) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	call := line{"call": line{"tool": tool, "arguments": arguments}}
	if err := h.encoder.Encode(call); err != nil {
		return "", fmt.Errorf("writing a call of %s: %w", tool, err)
	}
	var returned struct {
		Result string `json:"result"`
	}
	if err := h.decoder.Decode(&returned); err != nil {
		return "", fmt.Errorf("reading the result of %s: %w", tool, err)
	}
	return returned.Result, nil
}
