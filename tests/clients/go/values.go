package main

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Placeholders and paths, which insert values of earlier answers and long texts into requests and checks.

var placeholder = regexp.MustCompile(`\{\{([^{}]+)\}\}`)

// The values of placeholders, by name.
type values map[string]any

// Replaces placeholders at every depth, then converts objects that describe bytes.
func (v values) fill(value any) (any, error) {
	switch value := value.(type) {
	case string:
		return v.fillString(value)
	case []any:
		filled := make([]any, len(value))
		for at, element := range value {
			var err error
			if filled[at], err = v.fill(element); err != nil {
				return nil, err
			}
		}
		return filled, nil
	case map[string]any:
		filled := make(map[string]any, len(value))
		for key, field := range value {
			var err error
			if filled[key], err = v.fill(field); err != nil {
				return nil, err
			}
		}
		return asBytes(filled)
	default:
		return value, nil
	}
}

func (v values) fillString(text string) (any, error) {
	found := placeholder.FindAllStringSubmatchIndex(text, -1)
	var filled strings.Builder
	end := 0
	for _, at := range found {
		name := text[at[2]:at[3]]
		value, known := v[name]
		if !known {
			return nil, fmt.Errorf("nothing is known as {{%s}}", name)
		}
		if at[0] == 0 && at[1] == len(text) {
			return value, nil
		}
		filled.WriteString(text[end:at[0]])
		if plain, ok := value.(string); ok {
			filled.WriteString(plain)
		} else {
			filled.Write(canonical(nil, value))
		}
		end = at[1]
	}
	filled.WriteString(text[end:])
	return filled.String(), nil
}

// Converts `{"$text": …}` and `{"$sha256": …}` to base64. Other objects stay as they are.
func asBytes(object map[string]any) (any, error) {
	if len(object) != 1 {
		return object, nil
	}
	for key, value := range object {
		if key != "$text" && key != "$sha256" {
			break
		}
		text, ok := value.(string)
		if !ok {
			return nil, fmt.Errorf("%s needs a string", key)
		}
		bytes := []byte(text)
		if key == "$sha256" {
			digest := sha256.Sum256(bytes)
			bytes = digest[:]
		}
		return base64.StdEncoding.EncodeToString(bytes), nil
	}
	return object, nil
}

// Returns the value at a path of names and indexes.
func lookUp(value any, path string) (any, error) {
	for name := range strings.SplitSeq(path, ".") {
		switch inner := value.(type) {
		case map[string]any:
			field, ok := inner[name]
			if !ok {
				return nil, fmt.Errorf("%s leads nowhere: there is no %s", path, name)
			}
			value = field
		case []any:
			at, err := strconv.Atoi(name)
			if err != nil || at < 0 || at >= len(inner) {
				return nil, fmt.Errorf("%s leads nowhere: there is no element %s", path, name)
			}
			value = inner[at]
		default:
			return nil, fmt.Errorf("%s leads nowhere: %s is asked of a plain value", path, name)
		}
	}
	return value, nil
}
