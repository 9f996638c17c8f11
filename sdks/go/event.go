package osb

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/osb-dev/osb/sdks/go/wire"
)

// EventType says what an [Event] is about.
type EventType string

// What events are about.
const (
	// Started: it has begun. ID is what to ask by: a command's id, the session's, the context's.
	Started EventType = "started"
	// Stdout: output, with the line ends it was written with, in Text.
	Stdout EventType = "stdout"
	// Stderr: error output, with the line ends it was written with, in Text.
	Stderr EventType = "stderr"
	// Value: a value or a display of code, in Result.
	Value EventType = "result"
	// Counted: how many cells the context has run, in Count.
	Counted EventType = "count"
	// Errored: it failed, as Failure says.
	Errored EventType = "error"
	// Completed: it is over. Took is how long it took, where the daemon says so.
	Completed EventType = "completed"
)

// Event is one event of an [Execution].
type Event struct {
	Type EventType
	// ID is set in [Started].
	ID string
	// Text is set in [Stdout] and [Stderr].
	Text string
	// Result is set in [Value].
	Result *RichResult
	// Count is set in [Counted].
	Count int64
	// Failure is set in [Errored].
	Failure *Failure
	// Took is set in [Completed].
	Took *time.Duration
}

// Failure is how an execution failed.
type Failure struct {
	// Name is CommandExecError, NameError and so on.
	Name string
	// Value is the exit code of a command, the message of an exception.
	Value string
	// Traceback is where it happened, one entry per line.
	Traceback []string
}

// streamEvent is an event as it comes over the wire, or the error envelope that a daemon breaks a stream with.
type streamEvent struct {
	Type           wire.EventKind             `json:"type"`
	Text           string                     `json:"text"`
	Seq            int64                      `json:"seq"`
	Results        map[string]json.RawMessage `json:"results"`
	ExecutionCount *int64                     `json:"execution_count"`
	ExecutionTime  *int64                     `json:"execution_time"`
	Error          *wire.ExecutionError       `json:"error"`
	Code           string                     `json:"code"`
	Message        string                     `json:"message"`
}

// parseEvent reads an event. Output of commands comes some hundred thousand times a second and in one form,
// flat objects of short texts and whole numbers, which are read here; all else is left to encoding/json.
func parseEvent(text []byte) (streamEvent, error) {
	scan := eventScanner{text: text}
	if event, ok := scan.event(); ok {
		return event, nil
	}
	var event streamEvent
	err := json.Unmarshal(text, &event)
	return event, err
}

// eventScanner reads a flat object and gives up at whatever else it meets.
type eventScanner struct {
	text []byte
	at   int
}

func (s *eventScanner) event() (event streamEvent, ok bool) {
	if !s.take('{') {
		return event, false
	}
	for {
		key, ok := s.name()
		if !ok || !s.take(':') {
			return event, false
		}
		switch string(key) {
		case "type":
			name, ok := s.name()
			if !ok {
				return event, false
			}
			event.Type = kindOf(name)
		case "text":
			if event.Text, ok = s.string(); !ok {
				return event, false
			}
		case "seq":
			if event.Seq, ok = s.number(); !ok {
				return event, false
			}
		case "timestamp":
			if _, ok = s.number(); !ok {
				return event, false
			}
		default:
			return event, false
		}
		if s.take('}') {
			// An object without a type is left to encoding/json as well.
			return event, s.at == len(s.text) && event.Type != ""
		}
		if !s.take(',') {
			return event, false
		}
	}
}

// kindOf allocates nothing for the kinds that come often.
func kindOf(name []byte) wire.EventKind {
	switch string(name) {
	case string(wire.EventKindStdout):
		return wire.EventKindStdout
	case string(wire.EventKindStderr):
		return wire.EventKindStderr
	}
	return wire.EventKind(name)
}

func (s *eventScanner) take(c byte) bool {
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

// name is a text without escapes.
func (s *eventScanner) name() ([]byte, bool) {
	if !s.take('"') {
		return nil, false
	}
	for from := s.at; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return s.text[from : s.at-1], true
		case c == '\\' || c < ' ' || c >= utf8.RuneSelf:
			return nil, false
		}
	}
	return nil, false
}

func (s *eventScanner) number() (int64, bool) {
	var value int64
	from := s.at
	for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
		value = value*10 + int64(s.text[s.at]-'0')
		s.at++
	}
	// Eighteen digits always fit; of several the first is not 0.
	count := s.at - from
	return value, count == 1 || count > 1 && count <= 18 && s.text[from] != '0'
}

// unescaped has what stands for a byte after a backslash; 0 is for encoding/json.
var unescaped = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// string is a text with the short escapes of JSON (RFC 8259, section 7).
func (s *eventScanner) string() (string, bool) {
	if !s.take('"') {
		return "", false
	}
	from, escapes, isASCII := s.at, 0, true
	for ; s.at < len(s.text); s.at++ {
		c := s.text[s.at]
		if c == '"' {
			break
		}
		if c < ' ' {
			return "", false
		}
		if c >= utf8.RuneSelf {
			isASCII = false
		}
		if c == '\\' {
			escapes++
			if s.at++; s.at == len(s.text) || unescaped[s.text[s.at]] == 0 {
				return "", false
			}
		}
	}
	if s.at == len(s.text) {
		return "", false
	}
	content := s.text[from:s.at]
	s.at++
	if !isASCII && !utf8.Valid(content) {
		return "", false
	}
	if escapes == 0 {
		return string(content), true
	}
	// Not in its own place, which encoding/json may still have to read.
	var plain strings.Builder
	plain.Grow(len(content) - escapes)
	for at := 0; at < len(content); at++ {
		c := content[at]
		if c == '\\' {
			at++
			c = unescaped[content[at]]
		}
		plain.WriteByte(c)
	}
	return plain.String(), true
}
