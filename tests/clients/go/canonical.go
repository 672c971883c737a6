package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Writes canonical JSON, which has exactly one form for each value. encoding/json is not canonical: it escapes `<`,
// `>`, `&` and line separators, and keeps the original form of numbers.
func canonical(out []byte, value any) []byte {
	switch value := value.(type) {
	case nil:
		return append(out, "null"...)
	case bool:
		return strconv.AppendBool(out, value)
	case string:
		return appendString(out, value)
	case json.Number:
		return appendNumber(out, value)
	case []any:
		out = append(out, '[')
		for at, element := range value {
			if at > 0 {
				out = append(out, ',')
			}
			out = canonical(out, element)
		}
		return append(out, ']')
	case map[string]any:
		out = append(out, '{')
		for at, key := range slices.Sorted(maps.Keys(value)) {
			if at > 0 {
				out = append(out, ',')
			}
			out = append(appendString(out, key), ':')
			out = canonical(out, value[key])
		}
		return append(out, '}')
	default:
		panic(fmt.Sprintf("%T is no JSON value", value))
	}
}

func appendString(out []byte, text string) []byte {
	out = append(out, '"')
	for at := range len(text) {
		switch c := text[at]; c {
		case '"', '\\':
			out = append(out, '\\', c)
		case '\b':
			out = append(out, `\b`...)
		case '\t':
			out = append(out, `\t`...)
		case '\n':
			out = append(out, `\n`...)
		case '\f':
			out = append(out, `\f`...)
		case '\r':
			out = append(out, `\r`...)
		default:
			if c < 0x20 {
				out = fmt.Appendf(out, `\u%04x`, c)
			} else {
				out = append(out, c)
			}
		}
	}
	return append(out, '"')
}

// Writes integers without a point and rounds other numbers to six decimals without trailing zeros.
func appendNumber(out []byte, number json.Number) []byte {
	if _, err := number.Int64(); err == nil {
		return append(out, number...)
	}
	value, err := number.Float64()
	if err != nil {
		panic(fmt.Sprintf("%s is no number", number))
	}
	digits := strconv.FormatFloat(value, 'f', 6, 64)
	digits = strings.TrimRight(strings.TrimRight(digits, "0"), ".")
	if digits == "-0" {
		digits = "0"
	}
	return append(out, digits...)
}
