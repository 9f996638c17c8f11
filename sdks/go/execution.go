package osb

import (
	"context"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/osb-dev/osb/sdks/go/wire"
)

const (
	// Attempts to take a broken stream up again without a single event in between: with the growing waits
	// between them some ten seconds, in which a server restarts.
	resumeAttempts = 8
	// The wait before the second attempt; it doubles from there. The first is made at once.
	resumeDelay = 100 * time.Millisecond
	// After the last event the daemon closes the stream at once. A proxy that keeps it open must not keep
	// the caller.
	drainTime = time.Second
)

// executionKind is what an execution is of, which decides how its stream is read.
type executionKind string

const (
	// Can be taken up again; error is its last event.
	ofCommand executionKind = "command"
	// Its events cannot be asked for again.
	ofSession executionKind = "session"
	// Texts are as they were written, and execution_complete comes after error.
	ofContext executionKind = "context"
)

// Execution is what runs in a sandbox, as a stream of events: by [Execution.Events], by [Execution.Next], or
// all of it by [Execution.Output]. It ends with its last event, with the context it was started with, or
// with [Execution.Close]; what runs goes on without a reader.
//
// A stream that breaks is taken up again where it broke, so that every event is given out exactly once. That
// needs events that are numbered, which the published daemon does not send; its streams end with
// [StreamBroken] when they break.
//
// Events are read by one goroutine at a time; Close may come from any.
type Execution struct {
	kind   executionKind
	target *target
	ctx    context.Context
	cancel context.CancelFunc

	frames  *frameReader
	id      string
	lastSeq int64
	// Whether the events have numbers, by which they can be asked for again.
	isNumbered bool
	// Attempts to go on since the last event.
	failures int
	isOver   bool
	drain    *time.Timer

	mutex sync.Mutex
	// The connection of now, and whether nothing more is wanted of it.
	answer   *answer
	isClosed bool
}

func newExecution(ctx context.Context, got *answer, kind executionKind, at *target, id string, after int64) *Execution {
	e := &Execution{kind: kind, target: at, id: id, lastSeq: after, isNumbered: id != ""}
	e.ctx, e.cancel = context.WithCancel(ctx)
	e.read(got)
	return e
}

// read goes on with an answer, unless the execution was closed meanwhile.
func (e *Execution) read(got *answer) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.answer = got
	e.frames = newFrameReader(got, "the stream of "+e.what())
	if e.isClosed {
		got.Close()
	}
}

// ID is what to ask by, once it has begun.
func (e *Execution) ID() string { return e.id }

// LastSeq is the number of the last event that was given out, to follow a command from; 0 before the first,
// and of servers that number none.
func (e *Execution) LastSeq() int64 { return e.lastSeq }

// Close gives the stream up; what runs goes on. A reader that waits is told of the end.
func (e *Execution) Close() error {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if !e.isClosed {
		e.isClosed = true
		e.cancel()
		if e.drain != nil {
			e.drain.Stop()
		}
		// That the rest was not read is known.
		_ = e.answer.Close()
	}
	return nil
}

func (e *Execution) closed() bool {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return e.isClosed
}

// Events are the events as they come. Leaving the loop closes the execution; an error is the last that comes.
func (e *Execution) Events() iter.Seq2[Event, error] {
	return sequence(e.Next, e.Close)
}

// sequence is what next gives up to io.EOF, after which or after an error it is closed.
func sequence[T any](next func() (T, error), end func() error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		defer end()
		for {
			value, err := next()
			if err == io.EOF || !yield(value, err) || err != nil {
				return
			}
		}
	}
}

// Output reads to the end and is everything that came.
func (e *Execution) Output() (*Output, error) {
	return e.watch(nil, nil)
}

// watch reads to the end and writes output as it comes.
func (e *Execution) watch(stdout, stderr io.Writer) (*Output, error) {
	var collected collector
	for event, err := range e.Events() {
		if err != nil {
			return nil, err
		}
		collected.add(event)
		writer := stdout
		if event.Type == Stderr {
			writer = stderr
		} else if event.Type != Stdout {
			continue
		}
		if writer != nil {
			if _, err := io.WriteString(writer, event.Text); err != nil {
				return nil, err
			}
		}
	}
	return collected.finish(), nil
}

// Next is the next event; io.EOF after the last. Nothing comes after an error.
func (e *Execution) Next() (Event, error) {
	for {
		event, ok, err := e.step()
		if ok {
			return event, nil
		}
		if err != nil {
			// The reader that waited when it was given up is told of its end, not of an error.
			if e.closed() {
				err = io.EOF
			}
			e.Close()
			return Event{}, err
		}
	}
}

// step is an event, or nothing where what came is none, or where the stream was taken up again.
func (e *Execution) step() (Event, bool, error) {
	if e.isOver && e.drain == nil {
		e.mutex.Lock()
		e.drain = time.AfterFunc(drainTime, e.cancelAnswer)
		e.mutex.Unlock()
	}
	frame, err := e.frames.next()
	if err == nil {
		var parsed streamEvent
		if parsed, err = parseEvent(frame); err == nil {
			return e.take(parsed)
		}
		err = unreadableError("the stream of "+e.what(), err)
	}
	if e.isOver {
		// Whatever happens now, everything has come.
		return Event{}, false, io.EOF
	}
	if found := asError(err); found != nil && found.Kind == Unreadable && e.frames.isAtEnd() {
		// Half an event at the end of a broken connection comes again when resumed.
		return Event{}, false, nil
	} else if found != nil && found.Kind == Connection || err == io.EOF {
		return Event{}, false, e.resume(err)
	}
	return Event{}, false, err
}

func (e *Execution) cancelAnswer() {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.answer.cancel(context.Canceled)
}

func (e *Execution) take(event streamEvent) (Event, bool, error) {
	if event.Seq != 0 {
		if event.Seq <= e.lastSeq {
			return Event{}, false, nil
		}
		e.lastSeq, e.isNumbered = event.Seq, true
		e.failures = 0
	}
	switch event.Type {
	case wire.EventKindStdout:
		return Event{Type: Stdout, Text: e.text(event)}, true, nil
	case wire.EventKindStderr:
		return Event{Type: Stderr, Text: e.text(event)}, true, nil
	case wire.EventKindInit:
		e.id = strings.TrimRight(event.Text, " \r\n")
		return Event{Type: Started, ID: e.id}, true, nil
	case wire.EventKindResult:
		return Event{Type: Value, Result: newRichResult(event.Results, event.ExecutionCount)}, true, nil
	case wire.EventKindExecutionCount:
		counted := Event{Type: Counted}
		if event.ExecutionCount != nil {
			counted.Count = *event.ExecutionCount
		}
		return counted, true, nil
	case wire.EventKindError:
		e.isOver = true
		failure := &Failure{}
		if event.Error != nil {
			failure = &Failure{Name: event.Error.Ename, Value: event.Error.Evalue, Traceback: event.Error.Traceback}
		}
		return Event{Type: Errored, Failure: failure}, true, nil
	case wire.EventKindExecutionComplete:
		e.isOver = true
		completed := Event{Type: Completed}
		if event.ExecutionTime != nil {
			took := time.Duration(*event.ExecutionTime) * time.Millisecond
			completed.Took = &took
		}
		return completed, true, nil
	case "":
		// The stream broke on the daemon's side after it had begun: an error envelope.
		return Event{}, false, streamBrokenError(e.what(), event.Message+" ("+event.Code+")", nil)
	}
	return Event{}, false, nil
}

// text is that of an event. Events without numbers are lines without their ends, except those of code.
func (e *Execution) text(event streamEvent) string {
	if event.Seq != 0 || e.kind == ofContext || strings.HasSuffix(event.Text, "\n") {
		return event.Text
	}
	return event.Text + "\n"
}

func (e *Execution) what() string {
	if e.id == "" {
		return string(e.kind) + " (not begun)"
	}
	return string(e.kind) + " " + e.id
}

// resume goes on after the last event that came.
func (e *Execution) resume(broken error) error {
	if broken == io.EOF {
		broken = nil
	}
	if e.id == "" || !e.isNumbered || e.kind != ofCommand {
		const message = "the connection ended before the last event, and this kind of stream cannot be taken up again"
		return streamBrokenError(e.what(), message, broken)
	}
	path, err := pathOf("/command/%s/events", e.id)
	if err != nil {
		return err
	}
	query := queryOf("after", strconv.FormatInt(e.lastSeq, 10))
	for e.failures < resumeAttempts {
		if e.failures > 0 {
			// There is no event to wait for: the server or the network is away.
			if err := pause(e.ctx, resumeDelay<<(e.failures-1)); err != nil {
				return err
			}
		}
		e.failures++
		got, err := e.target.send(e.ctx, http.MethodGet, path, call{query: query})
		if err == nil {
			// The broken one holds a connection until it is closed.
			_ = e.answer.Close()
			e.read(got)
			return nil
		}
		found := asError(err)
		if found == nil {
			return err
		}
		if !found.Retryable() {
			return streamBrokenError(e.what(), "its rest is not to be had", err)
		}
		broken = err
	}
	return streamBrokenError(e.what(), "the sandbox could not be reached again", broken)
}
