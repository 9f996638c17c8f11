package osb

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/osb-dev/osb/sdks/go/wire"
)

const (
	// DefaultReadyTimeout is how long a sandbox may take to be ready, as in the other SDKs.
	DefaultReadyTimeout = 30 * time.Second
	// How long to wait before asking a server again that tells nobody of changes.
	askAgain = 500 * time.Millisecond
	// How long to wait before asking again whether a sandbox is ready. Our server holds the first request
	// until it is; the published one tells nobody, so that asking again is all there is.
	readyInterval = 200 * time.Millisecond
)

var errNotJSON = errors.New("it is not JSON")

// until calls check now and after every change until it says yes, or the time has passed: told by the server's
// stream of events where it has one, by asking again where it does not.
func (c *Client) until(
	ctx context.Context, what, sandboxID string, timeout time.Duration, check func(context.Context) (bool, error),
) error {
	if timeout == 0 {
		timeout = changeTimeout
	}
	late := timeoutError("waiting for "+what, timeout)
	limited, cancel := context.WithTimeoutCause(ctx, timeout, late)
	// Ends the stream of events as well, if one is open.
	defer cancel()
	isDone, err := check(limited)
	for err == nil && !isDone {
		if isDone, err = c.untilEvents(limited, sandboxID, check); err != nil || isDone {
			break
		}
		if err = pause(limited, askAgain); err == nil {
			isDone, err = check(limited)
		}
	}
	return err
}

// untilEvents says no when the server has no events, or when their stream ends before what is waited for came.
func (c *Client) untilEvents(ctx context.Context, sandboxID string, check func(context.Context) (bool, error)) (bool, error) {
	events, err := c.Events(ctx, &EventsOptions{SandboxID: sandboxID})
	if err != nil {
		if found := asError(err); found != nil {
			switch found.Status {
			case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
				// The route is not known to this server.
				return false, nil
			}
		}
		return false, err
	}
	defer events.Close()
	// Asked only now that no change can be missed any more.
	for {
		if isDone, err := check(ctx); isDone || err != nil {
			return isDone, err
		}
		if _, err := events.Next(); err == io.EOF || errors.Is(err, Connection) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
}

// ConnectOptions says how to connect to a sandbox that exists; nil is the usual way.
type ConnectOptions struct {
	// Client is by which; nil is one with the settings of Config. Only for [Connect].
	Client *Client
	// Config says where the server is; nil is [LoadConfig]. Only for [Connect].
	Config *Config
	// Resume resumes it first.
	Resume bool
	// ReadyTimeout is how long it may take to be ready; 0 is [DefaultReadyTimeout].
	ReadyTimeout time.Duration
	// SkipReady does not wait until it answers.
	SkipReady bool
}

// Connect connects to a sandbox that exists, which closing does not end.
func Connect(ctx context.Context, id string, options *ConnectOptions) (*Sandbox, error) {
	if options == nil {
		options = &ConnectOptions{}
	}
	client, err := clientOf(options.Client, options.Config)
	if err != nil {
		return nil, err
	}
	return connect(ctx, client, id, options)
}

func connect(ctx context.Context, client *Client, id string, options *ConnectOptions) (*Sandbox, error) {
	if options == nil {
		options = &ConnectOptions{}
	}
	if _, err := segment(id); err != nil {
		return nil, err
	}
	if options.Resume {
		if err := client.Resume(ctx, id); err != nil {
			return nil, err
		}
	}
	sandbox := client.Sandbox(id)
	if !options.SkipReady {
		if err := sandbox.ready(ctx, options.ReadyTimeout); err != nil {
			return nil, err
		}
	}
	return sandbox, nil
}

// ready waits until the daemon in the sandbox answers.
func (s *Sandbox) ready(ctx context.Context, timeout time.Duration) error {
	if timeout == 0 {
		timeout = DefaultReadyTimeout
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last error
	for {
		err := s.Ping(limited)
		if err == nil {
			return nil
		}
		if limited.Err() == nil && mayPass(err) {
			last = err
			if err = s.refuseHopeless(limited); err == nil {
				err = pause(limited, readyInterval)
			}
		}
		if err != nil && limited.Err() != nil && ctx.Err() == nil {
			return notReadyError(s.ID, timeout, last)
		}
		if err != nil {
			return err
		}
	}
}

// mayPass says whether the same question may be answered otherwise in a moment.
func mayPass(err error) bool {
	found := asError(err)
	if found == nil {
		return false
	}
	switch found.Status {
	case 0:
		return found.Kind == Connection || found.Kind == Timeout
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusGone:
		return false
	case http.StatusNotFound:
		// The sandbox itself is not known, as opposed to having no address yet.
		return found.Code == "KUBERNETES::POD_IP_NOT_AVAILABLE" || !strings.HasSuffix(found.Code, "NOT_FOUND")
	}
	return true
}

// refuseHopeless is an error if the sandbox is in a state from which it never becomes ready.
func (s *Sandbox) refuseHopeless(ctx context.Context) error {
	info, err := s.Info(ctx)
	if err != nil {
		// Whether it is hopeless is not known, which is no reason to stop waiting.
		return nil
	}
	state, message := info.Status.State, info.Status.Message
	switch state {
	case wire.SandboxStateFailed, wire.SandboxStateTerminated, wire.SandboxStateStopping:
		if message == "" {
			message = "the server does not say why"
		}
		return failedError("sandbox "+s.ID, string(state), message)
	case wire.SandboxStatePaused, wire.SandboxStatePausing:
		return failedError("sandbox "+s.ID, string(state), "resume it first")
	}
	return nil
}
