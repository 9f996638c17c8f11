package osb

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/coder/websocket"
	"github.com/osb-dev/osb/sdks/go/wire"
)

// The first byte of a binary frame.
const (
	frameStdin  = 0
	frameStdout = 1
	frameStderr = 2
	frameReplay = 3
)

const (
	// A replay has its kind, then the offset of its first byte.
	replayHeadBytes = 9
	// More than the daemon keeps of a terminal's output, and so the longest frame.
	terminalFrameBytesMax = 16 << 20
)

// TerminalSize is how large a terminal is, in characters.
type TerminalSize struct{ Columns, Rows int }

// NewTerminal says what a terminal is made of; nil is an interactive shell.
type NewTerminal struct {
	// Command is shell text to run instead of an interactive shell.
	Command string
	// Cwd is the working directory, made when it is not there.
	Cwd string
	// Size is its size from the start: a shell that is told its size only while it starts may miss it.
	Size *TerminalSize
}

// TerminalOptions says how to connect to a terminal; nil is the usual way.
type TerminalOptions struct {
	// Pipes are instead of a terminal, with stderr apart.
	Pipes bool
	// Since replays output from this byte on.
	Since *int64
	// TakeOver takes it from the client that holds it.
	TakeOver bool
	// Size is what it gets before its shell starts or anything is replayed. Pipes have no size.
	Size *TerminalSize
}

// TerminalEventType says what a [TerminalEvent] is about.
type TerminalEventType string

// What comes from a terminal.
const (
	// TerminalConnected: this client now holds the terminal.
	TerminalConnected TerminalEventType = "connected"
	// TerminalOutput: output, in Bytes.
	TerminalOutput TerminalEventType = "output"
	// TerminalErrorOutput: error output, in Bytes; only with pipes.
	TerminalErrorOutput TerminalEventType = "error_output"
	// TerminalReplay: output from before, or after some that was lost, from the byte Offset of the whole on.
	TerminalReplay TerminalEventType = "replay"
	// TerminalRefused: something that was sent could not be honoured, as Code and Reason say.
	TerminalRefused TerminalEventType = "refused"
	// TerminalExit: the process has ended, with ExitCode, -1 for a signal, and which, where the server says so.
	TerminalExit TerminalEventType = "exit"
	// TerminalClosed: the connection is closed, with CloseCode and Reason; 4001 is another client that took
	// over. Nothing comes after.
	TerminalClosed TerminalEventType = "closed"
)

// TerminalEvent is what comes from a terminal.
type TerminalEvent struct {
	Type TerminalEventType
	// Bytes are set in [TerminalOutput], [TerminalErrorOutput] and [TerminalReplay].
	Bytes []byte
	// Offset is set in [TerminalReplay].
	Offset int64
	// Code is set in [TerminalRefused].
	Code string
	// Reason is set in [TerminalRefused] and [TerminalClosed].
	Reason string
	// ExitCode is set in [TerminalExit].
	ExitCode int
	// Signal is set in [TerminalExit], 0 where the server does not say.
	Signal int
	// CloseCode is set in [TerminalClosed].
	CloseCode int
}

// Terminals are shells with a screen, over a WebSocket that can be left and come back to.
type Terminals struct{ sandbox *Sandbox }

// Create makes a terminal: an interactive shell, unless options say otherwise.
func (t *Terminals) Create(ctx context.Context, options *NewTerminal) (*Terminal, error) {
	exec, err := t.sandbox.exec(ctx)
	if err != nil {
		return nil, err
	}
	var request wire.CreatePtyRequest
	if options != nil {
		request.Command, request.Cwd = options.Command, options.Cwd
		if options.Size != nil {
			columns, rows := int32(options.Size.Columns), int32(options.Size.Rows)
			request.Cols, request.Rows = &columns, &rows
		}
	}
	made, err := sendJSON[wire.CreatePtyResponse](ctx, exec, http.MethodPost, "/pty", call{json: request})
	if err != nil {
		return nil, err
	}
	return t.Get(made.SessionID), nil
}

// Get is a terminal by its id, without any request.
func (t *Terminals) Get(id string) *Terminal { return &Terminal{id, t.sandbox} }

// Terminal is a shell with a screen. It ends with [Terminal.Delete].
type Terminal struct {
	// ID is what the daemon calls it.
	ID      string
	sandbox *Sandbox
}

// Status is how it stands.
func (t *Terminal) Status(ctx context.Context) (wire.PtyStatus, error) {
	exec, err := t.sandbox.exec(ctx)
	if err != nil {
		return wire.PtyStatus{}, err
	}
	return atID[wire.PtyStatus](ctx, exec, http.MethodGet, "/pty/%s", t.ID, call{})
}

// Delete ends it.
func (t *Terminal) Delete(ctx context.Context) error {
	exec, err := t.sandbox.exec(ctx)
	if err != nil {
		return err
	}
	return doneAtID(ctx, exec, http.MethodDelete, "/pty/%s", t.ID, call{})
}

// Connect connects to it; the first connection starts its shell. The connection lives until the context is
// over, or until it is closed.
func (t *Terminal) Connect(ctx context.Context, options *TerminalOptions) (*TerminalConnection, error) {
	exec, err := t.sandbox.exec(ctx)
	if err != nil {
		return nil, err
	}
	path, err := pathOf("/pty/%s/ws", t.ID)
	if err != nil {
		return nil, err
	}
	query := options.query()
	header := http.Header{}
	exec.setHeaders(header)
	lasting, cancel := context.WithCancelCause(ctx)
	stop := exec.deadline("connecting to a terminal", exec.config.RequestTimeout, cancel)
	client := &http.Client{Transport: exec.config.Transport, CheckRedirect: noRedirect}
	address := "ws" + strings.TrimPrefix(exec.base, "http") + path + query
	socket, response, err := websocket.Dial(lasting, address, &websocket.DialOptions{HTTPClient: client, HTTPHeader: header})
	stop()
	if err != nil {
		defer cancel(nil)
		return nil, refusedTerminal(lasting, exec.base+path, response, err)
	}
	socket.SetReadLimit(terminalFrameBytesMax)
	return &TerminalConnection{socket: socket, ctx: lasting, cancel: cancel}, nil
}

func (o *TerminalOptions) query() string {
	if o == nil {
		return ""
	}
	pty, since, takeOver, columns, rows := "", "", "", "", ""
	if o.Pipes {
		pty = "0"
	}
	if o.Since != nil {
		since = strconv.FormatInt(*o.Since, 10)
	}
	if o.TakeOver {
		takeOver = "1"
	}
	if o.Size != nil {
		columns, rows = strconv.Itoa(o.Size.Columns), strconv.Itoa(o.Size.Rows)
	}
	return "?" + queryOf("pty", pty, "since", since, "takeover", takeOver, "cols", columns, "rows", rows)
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// refusedTerminal is what a handshake that failed means. Its answer says why, as far as there is one.
func refusedTerminal(ctx context.Context, url string, response *http.Response, err error) error {
	if ctx.Err() != nil || response == nil {
		return failure(ctx, url, err)
	}
	if response.StatusCode/100 == 2 || response.StatusCode == http.StatusSwitchingProtocols {
		refused := terminalError("what answered is not a WebSocket", err)
		refused.Remedy = "check for a proxy in between that does not pass WebSockets on"
		return refused
	}
	got := &answer{Response: response, url: url, ctx: ctx, cancel: func(error) {}}
	return got.refusal("GET " + response.Request.URL.Path)
}

// TerminalConnection is a connection to a terminal: its events by [TerminalConnection.Events] or
// [TerminalConnection.Next], its input by [TerminalConnection.Write]. Events are read by one goroutine at a time;
// everything else may come from any.
type TerminalConnection struct {
	socket   *websocket.Conn
	ctx      context.Context
	cancel   context.CancelCauseFunc
	isOver   bool
	isClosed atomic.Bool
}

// Events are what comes, up to [TerminalClosed] and with it. Leaving the loop closes the connection; an error is
// the last that comes.
func (c *TerminalConnection) Events() iter.Seq2[TerminalEvent, error] {
	return sequence(c.Next, c.Close)
}

// Next is what comes next; io.EOF after [TerminalClosed].
func (c *TerminalConnection) Next() (TerminalEvent, error) {
	for !c.isOver {
		kind, frame, err := c.socket.Read(c.ctx)
		if err != nil {
			c.isOver = true
			return c.ending(err)
		}
		event, isKnown, err := binaryEvent(frame)
		if kind == websocket.MessageText {
			event, isKnown, err = textEvent(frame)
		}
		if err != nil {
			c.isOver = true
			c.Close()
			return TerminalEvent{}, err
		}
		if isKnown {
			return event, nil
		}
	}
	return TerminalEvent{}, io.EOF
}

// ending is what the end of the connection means.
func (c *TerminalConnection) ending(err error) (TerminalEvent, error) {
	var closed websocket.CloseError
	if errors.As(err, &closed) {
		return TerminalEvent{Type: TerminalClosed, CloseCode: int(closed.Code), Reason: closed.Reason}, nil
	}
	if c.isClosed.Load() {
		return TerminalEvent{Type: TerminalClosed, CloseCode: int(websocket.StatusNormalClosure)}, nil
	}
	if c.ctx.Err() != nil {
		return TerminalEvent{}, context.Cause(c.ctx)
	}
	return TerminalEvent{}, terminalError("it broke off: "+innermost(err).Error(), err)
}

// Write sends keystrokes.
func (c *TerminalConnection) Write(input []byte) (int, error) {
	frame := append(append(make([]byte, 0, len(input)+1), frameStdin), input...)
	if err := c.send(websocket.MessageBinary, frame); err != nil {
		return 0, err
	}
	return len(input), nil
}

// Resize says that the window has a new size.
func (c *TerminalConnection) Resize(columns, rows int) error {
	wide, high := int32(columns), int32(rows)
	return c.message(wire.PtyClientMessage{Type: "resize", Cols: &wide, Rows: &high})
}

// Signal sends a signal to what runs in front.
func (c *TerminalConnection) Signal(signal wire.PtySignal) error {
	return c.message(wire.PtyClientMessage{Type: "signal", Signal: signal})
}

// Ping asks the daemon for a sign of life, which says in turn that this client lives.
func (c *TerminalConnection) Ping() error { return c.message(wire.PtyClientMessage{Type: "ping"}) }

// Close leaves the terminal, which goes on without a client.
func (c *TerminalConnection) Close() error {
	if !c.isClosed.Swap(true) {
		// The terminal is left also where the other side does not say goodbye.
		_ = c.socket.Close(websocket.StatusNormalClosure, "")
		c.cancel(context.Canceled)
	}
	return nil
}

func (c *TerminalConnection) message(message wire.PtyClientMessage) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return c.send(websocket.MessageText, text)
}

func (c *TerminalConnection) send(kind websocket.MessageType, frame []byte) error {
	if c.isClosed.Load() {
		return terminalError("it is closed", nil)
	}
	if err := c.socket.Write(c.ctx, kind, frame); err != nil {
		if c.ctx.Err() != nil {
			return context.Cause(c.ctx)
		}
		return terminalError(innermost(err).Error(), err)
	}
	return nil
}

func binaryEvent(frame []byte) (TerminalEvent, bool, error) {
	if len(frame) == 0 {
		return TerminalEvent{}, false, nil
	}
	switch {
	case frame[0] == frameStdout:
		return TerminalEvent{Type: TerminalOutput, Bytes: frame[1:]}, true, nil
	case frame[0] == frameStderr:
		return TerminalEvent{Type: TerminalErrorOutput, Bytes: frame[1:]}, true, nil
	case frame[0] == frameReplay && len(frame) >= replayHeadBytes:
		offset := int64(binary.BigEndian.Uint64(frame[1:]))
		return TerminalEvent{Type: TerminalReplay, Offset: offset, Bytes: frame[replayHeadBytes:]}, true, nil
	}
	return TerminalEvent{}, false, terminalError(fmt.Sprintf("a frame begins with byte %d, which is no kind of frame", frame[0]), nil)
}

func textEvent(text []byte) (TerminalEvent, bool, error) {
	var message wire.PtyServerMessage
	if err := json.Unmarshal(text, &message); err != nil {
		return TerminalEvent{}, false, terminalError("a message is not JSON: "+err.Error(), err)
	}
	switch message.Type {
	case "connected":
		return TerminalEvent{Type: TerminalConnected}, true, nil
	case "error":
		return TerminalEvent{Type: TerminalRefused, Code: message.Code, Reason: message.Error}, true, nil
	case "exit":
		event := TerminalEvent{Type: TerminalExit}
		if message.ExitCode != nil {
			event.ExitCode = int(*message.ExitCode)
		}
		if message.Signal != nil {
			event.Signal = int(*message.Signal)
		}
		return event, true, nil
	}
	return TerminalEvent{}, false, nil
}
