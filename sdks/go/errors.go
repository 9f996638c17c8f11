package osb

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Kind is the class of an [Error]. It is an error itself, so that errors.Is tells them apart:
//
//	if errors.Is(err, osb.PoolEmpty) { … }
type Kind string

// The classes of errors.
const (
	// API: the server or the daemon in the sandbox answered with an error.
	API Kind = "api"
	// Connection: no answer came. The other side cannot be reached, or the connection broke.
	Connection Kind = "connection"
	// Timeout: no answer came in time.
	Timeout Kind = "timeout"
	// Unreadable: an answer is not what the protocol says.
	Unreadable Kind = "unreadable"
	// StreamBroken: a stream of events ended before its last event and could not be taken up again.
	StreamBroken Kind = "stream_broken"
	// NotReady: a sandbox was not ready in time.
	NotReady Kind = "not_ready"
	// Failed: a sandbox or snapshot got into a state from which what was waited for never comes.
	Failed Kind = "failed"
	// BadConfig: the connection's settings are not usable.
	BadConfig Kind = "config"
	// InvalidArgument: a call makes no sense, and nothing was sent.
	InvalidArgument Kind = "invalid_argument"
	// TerminalFailed: a terminal's connection failed.
	TerminalFailed Kind = "terminal"
	// PoolEmpty: the pool has no idle sandbox and its policy is not to make one.
	PoolEmpty Kind = "pool_empty"
	// PoolClosed: the pool was shut down.
	PoolClosed Kind = "pool_closed"
)

func (k Kind) Error() string { return string(k) }

// Error is every error of this package, but for those of the caller's own context, reader or file, which
// are given back as they are. Exit codes of commands and exceptions of code are no errors: they are in
// the [Output].
type Error struct {
	// Kind is the class of the error.
	Kind Kind
	// Code is the server's own for [API], else one of this package.
	Code string
	// Message says what happened and why.
	Message string
	// Remedy says what to do next.
	Remedy string
	// RequestID is the id under which the server logged the request, if it answered.
	RequestID string
	// Status is the HTTP status, if an answer came: of this error, or of the one behind it.
	Status int
	// RetryAfter is when to try again, if the server said so.
	RetryAfter time.Duration
	// Details has every problem of a request that failed validation.
	Details []string
	// Unsent says that the request certainly did not arrive, so that repeating it is safe.
	Unsent bool
	cause  error
}

func (e *Error) Error() string { return e.Message }

// Unwrap is the error behind this one.
func (e *Error) Unwrap() error { return e.cause }

// Is says whether the error is of this [Kind].
func (e *Error) Is(target error) bool {
	kind, ok := target.(Kind)
	return ok && kind == e.Kind
}

// NotFound says whether what was asked for does not exist.
func (e *Error) NotFound() bool { return e.Status == http.StatusNotFound }

// Unauthorized says whether the key is missing, wrong, or may not do this.
func (e *Error) Unauthorized() bool {
	return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden
}

// Retryable says whether the same call may succeed later. It says nothing about whether repeating it is
// safe: the SDK repeats by itself what is.
func (e *Error) Retryable() bool {
	switch e.Kind {
	case Connection, Timeout, PoolEmpty:
		return true
	}
	return isPassing(e.Status)
}

// isPassing is about statuses that say "not now".
func isPassing(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusBadGateway || status == http.StatusServiceUnavailable
}

// asError is the *Error in a chain, or nil.
func asError(err error) *Error {
	var found *Error
	if errors.As(err, &found) {
		return found
	}
	return nil
}

func isNotFound(err error) bool {
	found := asError(err)
	return found != nil && found.NotFound()
}

// behind takes over what an error knows of the answer that caused it.
func (e *Error) behind(cause error) *Error {
	e.cause = cause
	if found := asError(cause); found != nil {
		e.RequestID, e.Status = found.RequestID, found.Status
	}
	return e
}

func remedyOf(status int) string {
	switch status {
	case 400, 422:
		return "correct the request as the message says"
	case 401, 403:
		return "check the API key: " + EnvAPIKey + ", or APIKey of the Config"
	case 404:
		return "check the id or path; a sandbox is gone when its lifetime is over"
	case 409:
		return "look at the state of what this is about, which does not allow it now"
	case 410:
		return "begin again: what was asked for is no longer kept"
	case 429, 502, 503, 504:
		return "try again later"
	case 501:
		return "use another server or backend: this one does not do that"
	}
	return "look for the request id in the server's log"
}

func connectionError(url string, unsent bool, cause error) *Error {
	const remedy = "check the domain and that the server runs"
	return &Error{
		Kind: Connection, Code: "CONNECTION_FAILED", Remedy: remedy, Unsent: unsent, cause: cause,
		Message: fmt.Sprintf("%s cannot be reached: %v; %s", url, innermost(cause), remedy),
	}
}

// innermost is the error that names the cause, without the request that net/http puts before it.
func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

func timeoutError(what string, after time.Duration) *Error {
	return &Error{
		Kind: Timeout, Code: "TIMEOUT", Message: fmt.Sprintf("%s took longer than %s", what, after),
		Remedy: "allow more time, or look at what keeps the server or the sandbox busy",
	}
}

func unreadableError(what string, cause error) *Error {
	return &Error{
		Kind: Unreadable, Code: "UNREADABLE", Remedy: "check that the domain leads to an OpenSandbox server", cause: cause,
		Message: fmt.Sprintf("the answer of %s is not readable: %v; is this an OpenSandbox server?", what, cause),
	}
}

func untrustedError(message, remedy string) *Error {
	return &Error{Kind: Unreadable, Code: "UNREADABLE", Message: message, Remedy: remedy}
}

func streamBrokenError(what, message string, cause error) *Error {
	broken := &Error{
		Kind: StreamBroken, Code: "STREAM_BROKEN", Message: fmt.Sprintf("the stream of %s broke off: %s", what, message),
		Remedy: "ask for the status of the command; run in the background what must outlive a connection",
	}
	if cause != nil {
		broken.Message += ": " + cause.Error()
	}
	return broken.behind(cause)
}

func notReadyError(id string, after time.Duration, cause error) *Error {
	late := &Error{
		Kind: NotReady, Code: "NOT_READY", Message: fmt.Sprintf("sandbox %s was not ready after %s", id, after),
		Remedy: "look at its diagnostics, or wait longer with ReadyTimeout",
	}
	return late.behind(cause)
}

func failedError(subject, state, message string) *Error {
	failed := &Error{
		Kind: Failed, Code: "FAILED", Message: subject + " is " + state,
		Remedy: "look at its diagnostics and make another",
	}
	if message != "" {
		failed.Message += ": " + message
	}
	if state == "Paused" || state == "Pausing" {
		failed.Remedy = "resume it first"
	}
	return failed
}

// configError names where a setting stands: a variable, a file, a field.
func configError(origin, message string, cause error) *Error {
	return &Error{
		Kind: BadConfig, Code: "CONFIG", Message: origin + ": " + message, Remedy: "correct " + origin, cause: cause,
	}
}

func argumentError(format string, values ...any) *Error {
	return &Error{
		Kind: InvalidArgument, Code: "INVALID_ARGUMENT", Message: fmt.Sprintf(format, values...),
		Remedy: "correct the argument",
	}
}

func terminalError(message string, cause error) *Error {
	failed := &Error{
		Kind: TerminalFailed, Code: "TERMINAL", Message: "the terminal's connection failed: " + message,
		Remedy: "connect again; Since replays what was missed",
	}
	return failed.behind(cause)
}

func poolEmptyError(cause error) *Error {
	empty := &Error{
		Kind: PoolEmpty, Code: "POOL_EMPTY", Message: "the pool has no idle sandbox",
		Remedy: "wait, make it larger, or let it create on demand",
	}
	if cause != nil {
		empty.Message += "; the last attempt to make one failed: " + cause.Error()
	}
	return empty.behind(cause)
}

func poolClosedError() *Error {
	return &Error{Kind: PoolClosed, Code: "POOL_CLOSED", Message: "the pool is shut down", Remedy: "start another"}
}
