package osb

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// parseTOML reads as much of TOML 1.0 as the command line's settings use: tables, dotted keys, strings of
// one line, numbers, booleans, and arrays and inline tables of those. Dates and strings of several lines
// are refused. Numbers are float64. An error names the line.
func parseTOML(text string) (map[string]any, error) {
	root := map[string]any{}
	table := root
	reader := &tomlReader{text: text}
	for {
		reader.match(tomlBlank)
		if reader.at == len(text) {
			return root, nil
		}
		var err error
		switch {
		case reader.take("[["):
			err = reader.errorf("arrays of tables are not supported here")
		case reader.take("["):
			if table, err = reader.descend(root); err == nil {
				err = reader.expect("]")
			}
		default:
			err = reader.pair(table)
		}
		if err != nil {
			return nil, err
		}
		if _, ok := reader.match(tomlLineEnd); !ok {
			return nil, reader.errorf("expected the end of the line")
		}
	}
}

var (
	tomlBlank   = regexp.MustCompile(`^(?:[ \t\r\n]|#[^\n]*)*`)
	tomlSpace   = regexp.MustCompile(`^[ \t]*`)
	tomlLineEnd = regexp.MustCompile(`^[ \t]*(?:#[^\n]*)?(?:\r?\n|$)`)
	tomlBareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+`)
	tomlWord    = regexp.MustCompile(`^[A-Za-z0-9+\-_.:]+`)
	tomlLiteral = regexp.MustCompile(`^'[^'\n]*'`)
	tomlBasic   = regexp.MustCompile(`^"(?:[^"\\\n]|\\.)*"`)
	tomlEscape  = regexp.MustCompile(`\\(?:u[\da-fA-F]{4}|U[\da-fA-F]{8}|.)`)
	tomlDecimal = regexp.MustCompile(`^[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?$`)
	tomlBased   = regexp.MustCompile(`^(?:0x[\da-fA-F]+|0o[0-7]+|0b[01]+)$`)
)

type tomlReader struct {
	text string
	at   int
}

func (r *tomlReader) errorf(format string, values ...any) error {
	line := 1 + strings.Count(r.text[:r.at], "\n")
	return fmt.Errorf("line %d: %s", line, fmt.Sprintf(format, values...))
}

func (r *tomlReader) match(pattern *regexp.Regexp) (string, bool) {
	found := pattern.FindStringIndex(r.text[r.at:])
	if found == nil {
		return "", false
	}
	text := r.text[r.at : r.at+found[1]]
	r.at += found[1]
	return text, true
}

func (r *tomlReader) take(text string) bool {
	ok := strings.HasPrefix(r.text[r.at:], text)
	if ok {
		r.at += len(text)
	}
	return ok
}

func (r *tomlReader) expect(text string) error {
	r.match(tomlSpace)
	if !r.take(text) {
		return r.errorf("expected %q", text)
	}
	return nil
}

// keys reads a dotted key.
func (r *tomlReader) keys() ([]string, error) {
	var keys []string
	for {
		r.match(tomlSpace)
		key, ok := r.match(tomlBareKey)
		if !ok {
			var err error
			if key, err = r.string(); err != nil {
				return nil, err
			}
		}
		keys = append(keys, key)
		r.match(tomlSpace)
		if !r.take(".") {
			return keys, nil
		}
	}
}

// descend reads a dotted key and is the table at it, which is made when it is not there.
func (r *tomlReader) descend(table map[string]any) (map[string]any, error) {
	keys, err := r.keys()
	if err != nil {
		return nil, err
	}
	return r.below(table, keys)
}

func (r *tomlReader) below(table map[string]any, keys []string) (map[string]any, error) {
	for _, key := range keys {
		if _, ok := table[key]; !ok {
			table[key] = map[string]any{}
		}
		next, ok := table[key].(map[string]any)
		if !ok {
			return nil, r.errorf("%s is not a table", key)
		}
		table = next
	}
	return table, nil
}

// pair reads a key with its value into a table.
func (r *tomlReader) pair(table map[string]any) error {
	keys, err := r.keys()
	if err != nil {
		return err
	}
	if err := r.expect("="); err != nil {
		return err
	}
	last := keys[len(keys)-1]
	if table, err = r.below(table, keys[:len(keys)-1]); err != nil {
		return err
	}
	if _, ok := table[last]; ok {
		return r.errorf("%s is set twice", last)
	}
	table[last], err = r.value()
	return err
}

func (r *tomlReader) value() (any, error) {
	r.match(tomlSpace)
	if r.take("[") {
		return r.array()
	}
	if r.take("{") {
		return r.inlineTable()
	}
	word, ok := r.match(tomlWord)
	if !ok {
		return r.string()
	}
	digits := strings.ReplaceAll(word, "_", "")
	switch {
	case word == "true" || word == "false":
		return word == "true", nil
	case tomlDecimal.MatchString(digits):
		number, err := strconv.ParseFloat(digits, 64)
		if err == nil {
			return number, nil
		}
	case tomlBased.MatchString(digits):
		number, err := strconv.ParseInt(digits, 0, 64)
		if err == nil {
			return float64(number), nil
		}
	}
	return nil, r.errorf("%q is not a value; text stands in quotes", word)
}

func (r *tomlReader) string() (string, error) {
	rest := r.text[r.at:]
	if strings.HasPrefix(rest, `"""`) || strings.HasPrefix(rest, "'''") {
		return "", r.errorf("text of several lines is not supported here")
	}
	if literal, ok := r.match(tomlLiteral); ok {
		return literal[1 : len(literal)-1], nil
	}
	basic, ok := r.match(tomlBasic)
	if !ok {
		return "", r.errorf("expected text in quotes")
	}
	var err error
	text := tomlEscape.ReplaceAllStringFunc(basic[1:len(basic)-1], func(escape string) string {
		if escape[1] == 'u' || escape[1] == 'U' {
			if code, wrong := strconv.ParseUint(escape[2:], 16, 32); wrong == nil {
				return string(rune(code))
			}
		}
		if at := strings.IndexByte(`btnfr"\`, escape[1]); at >= 0 {
			return "\b\t\n\f\r\"\\"[at : at+1]
		}
		err = r.errorf("%s is not an escape", escape)
		return ""
	})
	return text, err
}

func (r *tomlReader) array() ([]any, error) {
	items := []any{}
	for {
		r.match(tomlBlank)
		if r.take("]") {
			return items, nil
		}
		item, err := r.value()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
		r.match(tomlBlank)
		if r.take("]") {
			return items, nil
		}
		if err := r.expect(","); err != nil {
			return nil, err
		}
	}
}

func (r *tomlReader) inlineTable() (map[string]any, error) {
	table := map[string]any{}
	r.match(tomlSpace)
	if r.take("}") {
		return table, nil
	}
	for {
		if err := r.pair(table); err != nil {
			return nil, err
		}
		r.match(tomlSpace)
		if !r.take(",") {
			return table, r.expect("}")
		}
	}
}
