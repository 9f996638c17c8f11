package osb

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/osb-dev/osb/sdks/go/wire"
)

// logsCursorHeader has the byte offset to read logs from next.
const logsCursorHeader = "EXECD-COMMANDS-TAIL-CURSOR"

// CommandOptions says how a command runs; nil is the usual way.
type CommandOptions struct {
	// Argv is a program and its arguments, run without a shell, instead of shell text.
	Argv []string
	// Cwd is its working directory.
	Cwd string
	// Env is its environment, over everything else.
	Env map[string]string
	// Timeout kills it after this time; 0 is never.
	Timeout time.Duration
	// UID is the user that it runs as.
	UID *int32
	// GID is the group that it runs as; needs a user as well.
	GID *int32
	// Stdin is text for its input, which then ends unless it is kept open (extension).
	Stdin string
	// StdinOpen keeps its input open for [Commands.WriteStdin] (extension).
	StdinOpen bool
	// Stdout gets output as it comes. Only for Run.
	Stdout io.Writer
	// Stderr gets error output as it comes. Only for Run.
	Stderr io.Writer
}

// Logs are output of a command so far.
type Logs struct {
	// Text is the output from the cursor on.
	Text string
	// Cursor is where to read on; nil where the daemon does not say.
	Cursor *int64
}

// Commands are the commands of a sandbox.
type Commands struct{ sandbox *Sandbox }

// Run runs shell text, or the Argv of the options, to its end. What ends with another code than 0 is no
// error: look at ExitCode. The end of the context stops waiting; the command goes on until it is interrupted
// or its time is over.
func (c *Commands) Run(ctx context.Context, command string, options *CommandOptions) (*Output, error) {
	execution, err := c.Stream(ctx, command, options)
	if err != nil {
		return nil, err
	}
	if options == nil {
		return execution.Output()
	}
	return execution.watch(options.Stdout, options.Stderr)
}

// Stream starts a command and is its events as they come, until the context is over.
func (c *Commands) Stream(ctx context.Context, command string, options *CommandOptions) (*Execution, error) {
	return c.start(ctx, command, options, false)
}

// Background starts a command in the background and is its id.
func (c *Commands) Background(ctx context.Context, command string, options *CommandOptions) (string, error) {
	execution, err := c.start(ctx, command, options, true)
	if err != nil {
		return "", err
	}
	output, err := execution.Output()
	if err != nil {
		return "", err
	}
	if output.Failure != nil {
		return "", failedError("the command", "not started", output.Failure.Value)
	}
	if output.ID == "" {
		return "", streamBrokenError("a background command", "it ended without the command's id", nil)
	}
	return output.ID, nil
}

func (c *Commands) start(ctx context.Context, command string, options *CommandOptions, background bool) (*Execution, error) {
	request := wire.RunCommandRequest{Command: command, Background: &background}
	if options != nil {
		request.Argv, request.Cwd, request.Envs = options.Argv, options.Cwd, options.Env
		request.UID, request.GID, request.Stdin = options.UID, options.GID, options.Stdin
		request.Timeout = milliseconds(options.Timeout)
		if options.StdinOpen {
			request.StdinOpen = &options.StdinOpen
		}
	}
	return startAt(ctx, c.sandbox, "/command", request, ofCommand)
}

// startAt asks the daemon to run something, which answers with events.
func startAt(ctx context.Context, sandbox *Sandbox, path string, request any, kind executionKind) (*Execution, error) {
	exec, err := sandbox.exec(ctx)
	if err != nil {
		return nil, err
	}
	got, err := exec.send(ctx, http.MethodPost, path, call{json: request})
	if err != nil {
		return nil, err
	}
	return newExecution(ctx, got, kind, exec, "", 0), nil
}

// milliseconds is a time as the protocol writes it; at least one, because 0 is never.
func milliseconds(limit time.Duration) *int64 {
	if limit == 0 {
		return nil
	}
	written := max(1, limit.Milliseconds())
	return &written
}

// Status is how a command is going.
func (c *Commands) Status(ctx context.Context, id string) (wire.CommandStatusResponse, error) {
	exec, err := c.sandbox.exec(ctx)
	if err != nil {
		return wire.CommandStatusResponse{}, err
	}
	return atID[wire.CommandStatusResponse](ctx, exec, http.MethodGet, "/command/status/%s", id, call{})
}

// List are the commands that the daemon still knows (extension).
func (c *Commands) List(ctx context.Context) ([]wire.CommandStatusResponse, error) {
	exec, err := c.sandbox.exec(ctx)
	if err != nil {
		return nil, err
	}
	return sendJSON[[]wire.CommandStatusResponse](ctx, exec, http.MethodGet, "/command", call{})
}

// Wait waits until a command has ended, also one that runs in the background, and is how.
func (c *Commands) Wait(ctx context.Context, id string) (wire.CommandStatusResponse, error) {
	execution, err := c.Follow(ctx, id, 0)
	if err != nil {
		return wire.CommandStatusResponse{}, err
	}
	// Only its end is of interest; the events before are let pass.
	for _, err := range execution.Events() {
		if err != nil {
			return wire.CommandStatusResponse{}, err
		}
	}
	return c.Status(ctx, id)
}

// Logs are the output of a command from a cursor on; 0 is its beginning.
func (c *Commands) Logs(ctx context.Context, id string, cursor int64) (Logs, error) {
	exec, err := c.sandbox.exec(ctx)
	if err != nil {
		return Logs{}, err
	}
	path, err := pathOf("/command/%s/logs", id)
	if err != nil {
		return Logs{}, err
	}
	got, err := exec.send(ctx, http.MethodGet, path, call{query: queryOf("cursor", number(cursor))})
	if err != nil {
		return Logs{}, err
	}
	logs := Logs{}
	if next, err := strconv.ParseInt(got.Header.Get(logsCursorHeader), 10, 64); err == nil {
		logs.Cursor = &next
	}
	text, err := newByteStream(got).bytes()
	logs.Text = string(text)
	return logs, err
}

// Interrupt interrupts a command, or what runs in a session.
func (c *Commands) Interrupt(ctx context.Context, id string) error {
	exec, err := c.sandbox.exec(ctx)
	if err != nil {
		return err
	}
	return exec.done(ctx, http.MethodDelete, "/command", call{query: queryOf("id", id)})
}

// WriteStdin writes to the input of a command that was started with StdinOpen, and ends it if asked to
// (extension). It returns how many bytes the command took, for which it may let its writer wait.
func (c *Commands) WriteStdin(ctx context.Context, id string, input []byte, end bool) (int64, error) {
	exec, err := c.sandbox.exec(ctx)
	if err != nil {
		return 0, err
	}
	sent := call{
		query: queryOf("close", strconv.FormatBool(end)), body: bytesBody("application/octet-stream", input), timeout: forever,
	}
	answered, err := atID[wire.StdinResponse](ctx, exec, http.MethodPost, "/command/%s/stdin", id, sent)
	return answered.Written, err
}

// Follow is the events of a command, also of one that runs in the background, after the event of this number;
// 0 is from its beginning (extension).
func (c *Commands) Follow(ctx context.Context, id string, after int64) (*Execution, error) {
	exec, err := c.sandbox.exec(ctx)
	if err != nil {
		return nil, err
	}
	path, err := pathOf("/command/%s/events", id)
	if err != nil {
		return nil, err
	}
	got, err := exec.send(ctx, http.MethodGet, path, call{query: queryOf("after", strconv.FormatInt(after, 10))})
	if err != nil {
		return nil, err
	}
	return newExecution(ctx, got, ofCommand, exec, id, after), nil
}

var variableName = regexp.MustCompile(`^\w+$`)

// SetEnv makes variables part of the environment of every command from now on, by adding them to the file that
// the daemon reads.
func (c *Commands) SetEnv(ctx context.Context, variables map[string]string) error {
	var lines strings.Builder
	for name, value := range variables {
		if !variableName.MatchString(name) || strings.Contains(value, "\n") {
			return argumentError("%q cannot be kept: a name has letters, digits and _, and a value is one line", name)
		}
		lines.WriteString(name + "=" + value + "\n")
	}
	const file = "${EXECD_ENVS:-/opt/opensandbox/.env}"
	text := strings.ReplaceAll(lines.String(), "'", `'\''`)
	output, err := c.Run(ctx, `mkdir -p "$(dirname "`+file+`")" && printf %s '`+text+`' >> "`+file+`"`, nil)
	if err != nil {
		return err
	}
	if !output.Success() {
		return failedError("sandbox "+c.sandbox.ID, "not able to keep variables", output.Stderr)
	}
	return nil
}
