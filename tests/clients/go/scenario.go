package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// What is played: the scenario's file, read strictly, so that a field that this runner does not know is an
// error and not a step played wrong.
type scenario struct {
	Texts map[string]text `json:"texts"`
	Show  rules           `json:"show"`
	Steps []step          `json:"steps"`
}

// A long text that the scenario describes instead of holding it.
type text struct {
	Count  int    `json:"count"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// How answers are written down: what becomes of the values of these keys.
type rules struct {
	Hidden   map[string]string `json:"hidden"`
	Numbered map[string]string `json:"numbered"`
	Text     []string          `json:"text"`
}

// One call, or one thing done with a call that is held.
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

// UnmarshalJSON begins with the defaults, so that a key that is `null` differs from one that is left out.
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

// Reads a file of JSON.
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

// Reads JSON, with numbers as they are written.
func decode(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}
