package osb

import (
	"encoding/json"
	"io"
	"iter"
	"sync/atomic"
)

// Stream is values as they come: by [Stream.All], or by [Stream.Next]. It ends with the context it was opened
// with, or with [Stream.Close]. Values are read by one goroutine at a time; Close may come from any.
type Stream[T any] struct {
	answer   *answer
	frames   *frameReader
	what     string
	isClosed atomic.Bool
}

func newStream[T any](got *answer, what string) *Stream[T] {
	return &Stream[T]{answer: got, frames: newFrameReader(got, what), what: what}
}

// Next is the next value; io.EOF after the last. Nothing comes after an error.
func (s *Stream[T]) Next() (T, error) {
	var value T
	frame, err := s.frames.next()
	if err == nil {
		if err = json.Unmarshal(frame, &value); err == nil {
			return value, nil
		}
		err = unreadableError(s.what, err)
	}
	if s.isClosed.Load() || s.frames.isAtEnd() && asError(err) != nil && asError(err).Kind == Unreadable {
		// A reader that waited when it was closed is told of its end, and half a value is none.
		err = io.EOF
	}
	s.Close()
	return value, err
}

// All are the values as they come. Leaving the loop closes the stream; an error is the last that comes.
func (s *Stream[T]) All() iter.Seq2[T, error] {
	return sequence(s.Next, s.Close)
}

// Close gives the stream up. A reader that waits is told of the end.
func (s *Stream[T]) Close() error {
	if !s.isClosed.Swap(true) {
		// That the rest was not read is known.
		_ = s.answer.Close()
	}
	return nil
}

// ByteStream is bytes as they arrive. It is to be closed, also after an error.
type ByteStream struct {
	// Length is how many bytes there are in all; -1 where that is not known.
	Length int64
	answer *answer
}

func newByteStream(got *answer) *ByteStream {
	return &ByteStream{Length: got.ContentLength, answer: got}
}

// Read reads what has come, as io.Reader says.
func (b *ByteStream) Read(piece []byte) (int, error) { return b.answer.Read(piece) }

// Close gives the rest up.
func (b *ByteStream) Close() error { return b.answer.Close() }

// bytes reads to the end and closes.
func (b *ByteStream) bytes() ([]byte, error) {
	defer b.Close()
	return io.ReadAll(b)
}
