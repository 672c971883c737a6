package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// The scenario's file. Unknown fields are errors, because the runner would otherwise play their steps wrongly.
type scenario struct {
	Texts map[string]text `json:"texts"`
	Show  rules           `json:"show"`
	Steps []step          `json:"steps"`
}

// A long text that the scenario describes instead of containing it.
type text struct {
	Count  int    `json:"count"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// The rules for writing answers, by the keys of their values.
type rules struct {
	Hidden   map[string]string `json:"hidden"`
	Numbered map[string]string `json:"numbered"`
	Text     []string          `json:"text"`
}

// One call, or one action on a held call.
type step struct {
	Name          string            `json:"name"`
	Call          string            `json:"call"`
	Request       any               `json:"request"`
	Server        string            `json:"server"`
	Key           *string           `json:"key"`
	Headers       map[string]string `json:"headers"`
	DeadlineMs    int               `json:"deadline_ms"`
	CancelAfterMs int               `json:"cancel_after_ms"`
	Read          int               `json:"read"`
	Hold          string            `json:"hold"`
	Resume        string            `json:"resume"`
	Release       string            `json:"release"`
	ClientStatus  bool              `json:"client_status"`
	HeadersShown  []string          `json:"headers_shown"`
	Capture       map[string]string `json:"capture"`
	Array         string            `json:"array"`
	Checks        []map[string]any  `json:"checks"`
	Expect        string            `json:"expect"`
}

// UnmarshalJSON starts with the defaults, so that a key with `null` differs from a missing key.
func (s *step) UnmarshalJSON(data []byte) error {
	type plain step
	agent := "agent"
	read := plain{Request: map[string]any{}, Server: "main", Key: &agent, DeadlineMs: 30_000}
	if err := decode(data, &read); err != nil {
		return err
	}
	*s = step(read)
	return nil
}

func (t text) String() string {
	var all strings.Builder
	for n := 1; n <= t.Count; n++ {
		all.WriteString(t.Before)
		all.WriteString(strconv.Itoa(n))
		all.WriteString(t.After)
	}
	return all.String()
}

// Reads a JSON file.
func readFile(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := decode(data, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Reads JSON and keeps the original form of numbers.
func decode(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}
