package osb

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/osb-dev/osb/sdks/go/wire"
)

// CodeOptions says how code runs; nil is in the default context of the default language.
type CodeOptions struct {
	// Language runs it in the default context of this language.
	Language string
	// Context is the id of the context that it runs in.
	Context string
	// Timeout interrupts it after this time; 0 is never (extension).
	Timeout time.Duration
	// Stdout gets output as it comes. Only for Run.
	Stdout io.Writer
	// Stderr gets error output as it comes. Only for Run.
	Stderr io.Writer
}

// ContextOptions says how a context is made; nil is the usual way.
type ContextOptions struct {
	// Cwd is its working directory.
	Cwd string
	// Env is the environment of its interpreter, over everything else (extension).
	Env map[string]string
}

// Code is code that remembers: contexts, and cells that run in them.
type Code struct{ sandbox *Sandbox }

// Run runs code to its end. An exception of the code is no error: look at Failure of the output.
func (c *Code) Run(ctx context.Context, code string, options *CodeOptions) (*Output, error) {
	execution, err := c.Stream(ctx, code, options)
	if err != nil {
		return nil, err
	}
	if options == nil {
		return execution.Output()
	}
	return execution.watch(options.Stdout, options.Stderr)
}

// Stream starts code and is its events as they come, until the context is over.
func (c *Code) Stream(ctx context.Context, code string, options *CodeOptions) (*Execution, error) {
	request := wire.RunCodeRequest{Code: code}
	if options != nil {
		request.Timeout = milliseconds(options.Timeout)
		if options.Language != "" || options.Context != "" {
			request.Context = &wire.ContextRef{ID: options.Context, Language: options.Language}
		}
	}
	return startAt(ctx, c.sandbox, "/code", request, ofContext)
}

// CreateContext makes a context of a language.
func (c *Code) CreateContext(ctx context.Context, language string, options *ContextOptions) (wire.CodeContext, error) {
	request := wire.CodeContextRequest{Language: language}
	if options != nil {
		request.Cwd, request.Envs = options.Cwd, options.Env
	}
	exec, err := c.sandbox.exec(ctx)
	if err != nil {
		return wire.CodeContext{}, err
	}
	return sendJSON[wire.CodeContext](ctx, exec, http.MethodPost, "/code/context", call{json: request})
}

// GetContext is a context.
func (c *Code) GetContext(ctx context.Context, id string) (wire.CodeContext, error) {
	exec, err := c.sandbox.exec(ctx)
	if err != nil {
		return wire.CodeContext{}, err
	}
	return atID[wire.CodeContext](ctx, exec, http.MethodGet, "/code/contexts/%s", id, call{})
}

// ListContexts are the contexts of a language, or all if it is empty.
func (c *Code) ListContexts(ctx context.Context, language string) ([]wire.CodeContext, error) {
	exec, err := c.sandbox.exec(ctx)
	if err != nil {
		return nil, err
	}
	asked := call{query: queryOf("language", language)}
	return sendJSON[[]wire.CodeContext](ctx, exec, http.MethodGet, "/code/contexts", asked)
}

// DeleteContext ends a context.
func (c *Code) DeleteContext(ctx context.Context, id string) error {
	exec, err := c.sandbox.exec(ctx)
	if err != nil {
		return err
	}
	return doneAtID(ctx, exec, http.MethodDelete, "/code/contexts/%s", id, call{})
}

// DeleteContexts ends the contexts of a language.
func (c *Code) DeleteContexts(ctx context.Context, language string) error {
	exec, err := c.sandbox.exec(ctx)
	if err != nil {
		return err
	}
	return exec.done(ctx, http.MethodDelete, "/code/contexts", call{query: queryOf("language", language)})
}

// Interrupt interrupts what runs in a context, which is named by the ID of [Started].
func (c *Code) Interrupt(ctx context.Context, id string) error {
	exec, err := c.sandbox.exec(ctx)
	if err != nil {
		return err
	}
	return exec.done(ctx, http.MethodDelete, "/code", call{query: queryOf("id", id)})
}
