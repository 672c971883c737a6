package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/genproto/googleapis/rpc/code"
	_ "google.golang.org/genproto/googleapis/rpc/errdetails" // Registers the details of errors.
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Plays steps and keeps the state between them.
type player struct {
	world  *world
	values values
	arrays map[string][][]byte
	held   map[string]*call
	shower *shower
}

func newPlayer(scenario *scenario, world *world) *player {
	values := values{}
	for name, text := range scenario.Texts {
		values[name] = text.String()
	}
	return &player{
		world:  world,
		values: values,
		arrays: map[string][][]byte{},
		held:   map[string]*call{},
		shower: newShower(scenario.Show),
	}
}

func (p *player) close() {
	for _, held := range p.held {
		held.cancel()
	}
}

// Plays one step and returns its line.
func (p *player) play(step *step) (map[string]any, error) {
	made, err := p.perform(step)
	if err != nil {
		return nil, err
	}
	line := map[string]any{}
	if made.err != nil && !step.ClientStatus {
		line["message"] = status.Convert(made.err).Message()
		details, err := detailsOf(made.err)
		if err != nil {
			return nil, err
		}
		if len(details) > 0 {
			line["details"] = details
		}
	}
	if made.streaming && len(made.answers) > 0 {
		line["answers"] = made.answers
	} else if !made.streaming && made.err == nil {
		line["answer"] = made.answers[0]
	}
	if shown := shownHeaders(step, made); len(shown) > 0 {
		line["headers"] = shown
	}
	checks, err := p.follow(step, made, line)
	if err != nil {
		return nil, err
	}
	// Only details and answers can contain hidden values. In other fields, only strings are replaced.
	for _, key := range []string{"details", "answer", "answers"} {
		if value, ok := line[key]; ok {
			if line[key], err = p.shower.begin(value); err != nil {
				return nil, err
			}
		}
	}
	p.shower.finish(line)
	line["step"] = step.Name
	line["status"] = code.Code(status.Code(made.err)).String()
	if checks != nil {
		line["checks"] = checks
	}
	return line, nil
}

// Makes the step's call, or resumes a held one.
func (p *player) perform(step *step) (outcome, error) {
	if name := step.Resume + step.Release; name != "" {
		held, ok := p.held[name]
		if !ok {
			return outcome{}, fmt.Errorf("no call is held as %s", name)
		}
		if step.Resume != "" {
			return held.read(step.Read)
		}
		held.cancel()
		delete(p.held, name)
		return outcome{streaming: true}, nil
	}
	request, err := p.values.fill(step.Request)
	if err != nil {
		return outcome{}, err
	}
	begun, made, err := begin(step, p.world, canonical(nil, request))
	if err != nil {
		return outcome{}, err
	}
	if made.streaming && made.err == nil {
		made, err = begun.read(step.Read)
	}
	if step.Hold != "" && err == nil {
		p.held[step.Hold] = begun
	} else {
		begun.cancel()
	}
	return made, err
}

// Processes the answers of a successful call: array, captures and checks.
func (p *player) follow(step *step, made outcome, line map[string]any) ([]any, error) {
	if made.err != nil {
		return nil, nil
	}
	if step.Array != "" {
		for _, answer := range made.answers {
			if err := p.extend(step.Array, answer); err != nil {
				return nil, err
			}
		}
		line["array"] = string(p.arrayText(step.Array))
	}
	var whole any = made.answers
	if !made.streaming {
		whole = made.answers[0]
	}
	for name, path := range step.Capture {
		value, err := lookUp(whole, path)
		if err != nil {
			return nil, err
		}
		p.values[name] = value
	}
	var results []any
	for _, unfilled := range step.Checks {
		filled, err := p.values.fill(unfilled)
		if err != nil {
			return nil, err
		}
		check, _ := filled.(map[string]any)
		result, err := p.check(check, made.answers, whole)
		if err != nil {
			return nil, err
		}
		results = append(results, result)
	}
	return results, nil
}

// Keeps the prefix of the array that the answer states, and appends the answer's messages.
func (p *player) extend(name string, answer any) error {
	reply, _ := answer.(map[string]any)
	keep := int64(0)
	for _, key := range []string{"keepMessages", "firstMessageIndex"} {
		if number, ok := reply[key].(interface{ Int64() (int64, error) }); ok {
			keep, _ = number.Int64()
		}
	}
	if have := int64(len(p.arrays[name])); keep > have {
		return fmt.Errorf("the answer keeps %d messages, and the array %s has %d", keep, name, have)
	}
	array := p.arrays[name][:keep]
	added, _ := reply["messagesJson"].([]any)
	for _, element := range added {
		encoded, _ := element.(string)
		message, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return err
		}
		array = append(array, message)
	}
	p.arrays[name] = array
	return nil
}

func (p *player) arrayText(name string) []byte {
	return slices.Concat([]byte("["), bytes.Join(p.arrays[name], []byte(",")), []byte("]"))
}

// Evaluates a check of the client.
func (p *player) check(check map[string]any, answers []any, whole any) (bool, error) {
	if path, ok := check["value"].(string); ok {
		value, err := lookUp(whole, path)
		return err == nil && bytes.Equal(canonical(nil, value), canonical(nil, check["equals"])), err
	}
	equals, ok := check["equals"].(string)
	if !ok {
		return false, errors.New("a check of bytes or of an array needs a string in `equals`")
	}
	if name, ok := check["array"].(string); ok {
		return sha256.Sum256(p.arrayText(name)) == sha256.Sum256(p.arrayText(equals)), nil
	}
	field, ok := check["bytes"].(string)
	if !ok {
		return false, errors.New("a check is of `value`, `array` or `bytes`")
	}
	var all []byte
	for _, answer := range answers {
		reply, _ := answer.(map[string]any)
		encoded, _ := reply[field].(string)
		part, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return false, err
		}
		all = append(all, part...)
	}
	from, to, err := rangeOf(check, len(equals))
	if err != nil {
		return false, err
	}
	return sha256.Sum256(all) == sha256.Sum256([]byte(equals[from:to])), nil
}

// Returns the part of the text that a check selects.
func rangeOf(check map[string]any, length int) (from, to int, err error) {
	from, to = 0, length
	for key, at := range map[string]*int{"from": &from, "to": &to} {
		if number, ok := check[key].(interface{ Int64() (int64, error) }); ok {
			value, err := number.Int64()
			if err != nil {
				return 0, 0, err
			}
			*at = int(value)
		}
	}
	if from < 0 || from > to || to > length {
		return 0, 0, fmt.Errorf("the text has no bytes %d to %d", from, to)
	}
	return from, to, nil
}

// Returns the details of a status, each with its type.
func detailsOf(refusal error) ([]any, error) {
	var details []any
	for _, packed := range status.Convert(refusal).Proto().GetDetails() {
		detail, err := packed.UnmarshalNew()
		if err != nil {
			return nil, err
		}
		value, err := asJSON(detail)
		if err != nil {
			return nil, err
		}
		name := string(detail.ProtoReflect().Descriptor().FullName())
		details = append(details, map[string]any{"type": name, "value": value})
	}
	return details, nil
}

// Returns the headers that a step names: from the headers of the call, otherwise from its trailers.
func shownHeaders(step *step, made outcome) map[string]any {
	shown := map[string]any{}
	for _, name := range step.HeadersShown {
		for _, from := range []metadata.MD{made.header, made.trailer} {
			if values := from.Get(name); len(values) > 0 {
				shown[name] = values[0]
				break
			}
		}
	}
	return shown
}
