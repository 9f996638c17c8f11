package osb

import (
	"bytes"
	"fmt"
	"io"
)

const (
	// Longer than any event we send; the published daemon sends whole lines, however long.
	eventBytesMax = 16 << 20
	// Read at once from a stream of events.
	pieceBytes = 64 << 10
	// As much of a line as goes into an error.
	excerptBytes = 80
)

// frameReader reads the events of one stream: bare JSON lines, data lines, and plain server-sent
// events, in whatever pieces they arrive. It holds at most one event and one piece.
type frameReader struct {
	source io.Reader
	what   string
	buffer []byte
	// What is still to be looked at: buffer[from:to]; up to scanned there is no line end.
	from, scanned, to int
	// The data lines of the event that is arriving.
	data []byte
	has  bool
	// The error of the source, and whether what is behind the last line end was looked at.
	ended  error
	isRest bool
}

func newFrameReader(source io.Reader, what string) *frameReader {
	return &frameReader{source: source, what: what, buffer: make([]byte, pieceBytes)}
}

// next is the JSON text of the next event, good until the next call; io.EOF at the end of the stream. An
// event that lacks its empty line or even its line end counts, as clients of the published daemon take such
// an event too; it may be half of one.
func (r *frameReader) next() ([]byte, error) {
	for {
		line, err := r.line()
		if err == io.EOF {
			r.isRest = true
			line, r.from = bytes.TrimRight(r.buffer[r.from:r.to], "\r"), r.to
			if event, err := r.take(line); event != nil || err != nil {
				return event, err
			}
			if event, err := r.take(nil); event != nil || err != nil {
				return event, err
			}
			return nil, r.ended
		}
		if err != nil {
			return nil, err
		}
		if event, err := r.take(line); event != nil || err != nil {
			return event, err
		}
	}
}

// line is the next line without its end; io.EOF when there is no whole one any more.
func (r *frameReader) line() ([]byte, error) {
	for {
		if at := bytes.IndexByte(r.buffer[r.scanned:r.to], '\n'); at >= 0 {
			line := r.buffer[r.from : r.scanned+at]
			r.from = r.scanned + at + 1
			r.scanned = r.from
			if len(line) > 0 && line[len(line)-1] == '\r' {
				line = line[:len(line)-1]
			}
			return line, nil
		}
		r.scanned = r.to
		if r.ended != nil {
			return nil, r.ended
		}
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
}

// fill reads a piece behind what is there.
func (r *frameReader) fill() error {
	if r.from > 0 {
		copy(r.buffer, r.buffer[r.from:r.to])
		r.scanned, r.to, r.from = r.scanned-r.from, r.to-r.from, 0
	}
	if r.to == len(r.buffer) {
		if len(r.buffer) >= eventBytesMax {
			return r.tooLong()
		}
		r.buffer = append(r.buffer, make([]byte, len(r.buffer))...)
	}
	count, err := r.source.Read(r.buffer[r.to:])
	r.to += count
	r.ended = err
	return nil
}

// take looks at a line and is the event that it completes, if it does.
func (r *frameReader) take(line []byte) ([]byte, error) {
	if len(line) == 0 {
		if !r.has {
			return nil, nil
		}
		event := r.data
		r.data, r.has = r.data[:0], false
		return event, nil
	}
	bare := bytes.TrimSpace(line)
	if len(bare) > 0 && (bare[0] == '{' || bare[0] == '[') {
		return bare, nil
	}
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || len(bytes.TrimFunc(name, isNameRune)) > 0 {
		excerpt := line[:min(len(line), excerptBytes)]
		return nil, unreadableError(r.what, fmt.Errorf("a line is neither JSON nor a field of server-sent events: %q", excerpt))
	}
	if string(name) != "data" {
		return nil, nil
	}
	if r.has {
		r.data = append(r.data, '\n')
	}
	r.data, r.has = append(r.data, bytes.TrimPrefix(value, []byte(" "))...), true
	if len(r.data) > eventBytesMax {
		return nil, r.tooLong()
	}
	return nil, nil
}

// isAtEnd says that the stream ended within what came last, which may be half an event.
func (r *frameReader) isAtEnd() bool { return r.isRest }

func (r *frameReader) tooLong() error {
	return unreadableError(r.what, fmt.Errorf("an event is longer than %d bytes", eventBytesMax))
}

func isNameRune(c rune) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '_' || c == '-'
}
