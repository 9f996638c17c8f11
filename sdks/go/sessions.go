package osb

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/osb-dev/osb/sdks/go/wire"
)

// SessionRunOptions says how shell text runs in a session; nil is the usual way.
type SessionRunOptions struct {
	// Cwd is where to run; the session goes on from there.
	Cwd string
	// Timeout ends this run, not the session, after this time; 0 is never.
	Timeout time.Duration
	// Stdout gets output as it comes. Only for Run.
	Stdout io.Writer
	// Stderr gets error output as it comes. Only for Run.
	Stderr io.Writer
}

// Sessions are live shells that keep their variables, functions and directory between runs.
type Sessions struct{ sandbox *Sandbox }

// Create starts a shell in this directory, or in the usual one if it is empty.
func (s *Sessions) Create(ctx context.Context, cwd string) (*Session, error) {
	exec, err := s.sandbox.exec(ctx)
	if err != nil {
		return nil, err
	}
	request := wire.CreateSessionRequest{Cwd: cwd}
	made, err := sendJSON[wire.CreateSessionResponse](ctx, exec, http.MethodPost, "/session", call{json: request})
	if err != nil {
		return nil, err
	}
	return s.Get(made.SessionID), nil
}

// Get is a session by its id, without any request.
func (s *Sessions) Get(id string) *Session { return &Session{id, s.sandbox} }

// Session is a live shell. It ends with [Session.Delete].
type Session struct {
	// ID is what the daemon calls it.
	ID      string
	sandbox *Sandbox
}

// Run runs shell text in it to the end.
func (s *Session) Run(ctx context.Context, command string, options *SessionRunOptions) (*Output, error) {
	execution, err := s.Stream(ctx, command, options)
	if err != nil {
		return nil, err
	}
	if options == nil {
		return execution.Output()
	}
	return execution.watch(options.Stdout, options.Stderr)
}

// Stream runs shell text in it and is its events as they come, until the context is over.
func (s *Session) Stream(ctx context.Context, command string, options *SessionRunOptions) (*Execution, error) {
	request := wire.RunInSessionRequest{Command: command}
	if options != nil {
		request.Cwd, request.Timeout = options.Cwd, milliseconds(options.Timeout)
	}
	path, err := pathOf("/session/%s/run", s.ID)
	if err != nil {
		return nil, err
	}
	return startAt(ctx, s.sandbox, path, request, ofSession)
}

// Interrupt interrupts what runs in it.
func (s *Session) Interrupt(ctx context.Context) error {
	return s.sandbox.Commands.Interrupt(ctx, s.ID)
}

// Delete ends it.
func (s *Session) Delete(ctx context.Context) error {
	exec, err := s.sandbox.exec(ctx)
	if err != nil {
		return err
	}
	return doneAtID(ctx, exec, http.MethodDelete, "/session/%s", s.ID, call{})
}
