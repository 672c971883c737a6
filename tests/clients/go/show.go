package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Writes answers. Values that differ between runs are replaced by stable names.
type shower struct {
	rules    rules
	numbers  map[string]string // What stands for a value.
	last     map[string]int    // The last number of each label.
	replaced []string          // Values with a number, in the order in which they are replaced.
}

// Shorter values are not replaced within other strings, because they would match by chance.
const leastReplaced = 6

// Longer strings are written as a digest.
const mostShown = 2_000

// A finished string, in which nothing else is replaced.
type done string

func newShower(rules rules) *shower {
	return &shower{rules: rules, numbers: map[string]string{}, last: map[string]int{}}
}

// Decodes, hides and numbers values. The whole line is processed before `finish` is called for any part of it.
func (s *shower) begin(value any) (any, error) {
	value, err := s.decodeAndHide(value)
	if err != nil {
		return nil, err
	}
	return s.number(value), nil
}

func (s *shower) decodeAndHide(value any) (any, error) {
	return rewrite(value, func(key string, field any) (any, error) {
		if label, ok := s.rules.Hidden[key]; ok {
			return done("<" + label + ">"), nil
		}
		if slices.Contains(s.rules.Text, key) {
			return eachString(field, func(encoded string) (any, error) {
				decoded, err := base64.StdEncoding.DecodeString(encoded)
				return string(decoded), err
			})
		}
		return s.decodeAndHide(field)
	})
}

func (s *shower) number(value any) any {
	numbered, _ := rewrite(value, func(key string, field any) (any, error) {
		label, ok := s.rules.Numbered[key]
		if !ok {
			return s.number(field), nil
		}
		switch field := field.(type) {
		case string:
			return s.nameOf(field, label), nil
		case []any:
			named := make([]any, len(field))
			for at, element := range field {
				if text, ok := element.(string); ok {
					named[at] = s.nameOf(text, label)
				} else {
					named[at] = s.number(element)
				}
			}
			return named, nil
		default:
			return s.number(field), nil
		}
	})
	return numbered
}

// Returns the name of a value: its earlier name, or the next number of the label.
func (s *shower) nameOf(text, label string) any {
	if text == "" {
		return text
	}
	if name, ok := s.numbers[text]; ok {
		return done(name)
	}
	s.last[label]++
	name := fmt.Sprintf("<%s:%d>", label, s.last[label])
	s.numbers[text] = name
	if utf8.RuneCountInString(text) >= leastReplaced {
		s.replaced = append(s.replaced, text)
		slices.SortStableFunc(s.replaced, func(a, b string) int {
			return cmp.Compare(utf8.RuneCountInString(b), utf8.RuneCountInString(a))
		})
	}
	return done(name)
}

// Replaces numbered values within other strings, and shortens long strings.
func (s *shower) finish(value any) any {
	switch value := value.(type) {
	case done:
		return string(value)
	case string:
		for _, known := range s.replaced {
			value = strings.ReplaceAll(value, known, s.numbers[known])
		}
		if len(value) > mostShown {
			return fmt.Sprintf("<%d bytes, sha256 %x>", len(value), sha256.Sum256([]byte(value)))
		}
		return value
	case []any:
		for at, element := range value {
			value[at] = s.finish(element)
		}
		return value
	case map[string]any:
		for key, field := range value {
			value[key] = s.finish(field)
		}
		return value
	default:
		return value
	}
}

// Returns a copy in which `change` replaces each field of every outermost object, in the order of the keys.
func rewrite(value any, change func(key string, field any) (any, error)) (any, error) {
	switch value := value.(type) {
	case []any:
		changed := make([]any, len(value))
		for at, element := range value {
			var err error
			if changed[at], err = rewrite(element, change); err != nil {
				return nil, err
			}
		}
		return changed, nil
	case map[string]any:
		changed := make(map[string]any, len(value))
		for _, key := range slices.Sorted(maps.Keys(value)) {
			var err error
			if changed[key], err = change(key, value[key]); err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
		}
		return changed, nil
	default:
		return value, nil
	}
}

// Changes a string, or each string of an array. Other values stay as they are.
func eachString(value any, change func(string) (any, error)) (any, error) {
	switch value := value.(type) {
	case string:
		return change(value)
	case []any:
		changed := make([]any, len(value))
		for at, element := range value {
			var err error
			if changed[at], err = eachString(element, change); err != nil {
				return nil, err
			}
		}
		return changed, nil
	default:
		return value, nil
	}
}
