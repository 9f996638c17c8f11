// Command conformance reads calls from stdin, one JSON object a line, makes them with the SDK and answers on stdout;
// the protocol is in sdks/conformance/README.md. Calls overlap, as there.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"sync"

	osb "github.com/osb-dev/osb/sdks/go"
)

// message is a line of stdin.
type message struct {
	ID     int             `json:"id"`
	Call   string          `json:"call"`
	On     string          `json:"on"`
	With   json.RawMessage `json:"with"`
	As     string          `json:"as"`
	Cancel *int            `json:"cancel"`
}

// held is what a call left under a name, with what is told of it and how it is closed.
type held struct {
	value any
	shown any
	close func()
}

type runner struct {
	mutex   sync.Mutex
	out     *json.Encoder
	held    map[string]*held
	order   []string
	running map[int]context.CancelFunc
}

func main() {
	r := &runner{out: json.NewEncoder(os.Stdout), held: map[string]*held{}, running: map[int]context.CancelFunc{}}
	r.out.SetEscapeHTML(false)
	r.say(map[string]any{"ready": true})
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		var next message
		if err == nil {
			err = json.Unmarshal(line, &next)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "conformance:", err)
			os.Exit(1)
		}
		r.start(next)
	}
}

func (r *runner) say(answer any) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if err := r.out.Encode(answer); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

// start begins a call, or gives one up.
func (r *runner) start(next message) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if next.Cancel != nil {
		if cancel := r.running[*next.Cancel]; cancel != nil {
			cancel()
		}
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.running[next.ID] = cancel
	go func() {
		r.answer(ctx, next)
		r.mutex.Lock()
		delete(r.running, next.ID)
		r.mutex.Unlock()
		cancel()
	}()
}

func (r *runner) answer(ctx context.Context, asked message) {
	result, err := r.make(ctx, asked)
	if err != nil {
		r.say(map[string]any{"id": asked.ID, "error": described(ctx, err)})
		return
	}
	r.say(map[string]any{"id": asked.ID, "result": result})
}

func (r *runner) make(ctx context.Context, asked message) (result any, err error) {
	defer func() {
		if wrong := recover(); wrong != nil {
			err = fmt.Errorf("%v\n%s", wrong, debug.Stack())
		}
	}()
	if asked.Call == "runner.reset" {
		r.reset()
		return nil, nil
	}
	made := calls[asked.Call]
	if made == nil {
		return nil, fmt.Errorf("this runner has no call %s", asked.Call)
	}
	var with arguments
	if len(asked.With) > 0 {
		if err := json.Unmarshal(asked.With, &with); err != nil {
			return nil, fmt.Errorf("%s: %w", asked.Call, err)
		}
	}
	var on any
	if asked.On != "" {
		r.mutex.Lock()
		found := r.held[asked.On]
		r.mutex.Unlock()
		if found == nil {
			return nil, fmt.Errorf("nothing is held as %s", asked.On)
		}
		on = found.value
	}
	result, err = made(ctx, on, &with)
	if err != nil {
		return nil, err
	}
	kept, ok := result.(*held)
	if !ok {
		return result, nil
	}
	if asked.As == "" {
		return nil, fmt.Errorf("%s leaves something, and has no name for it", asked.Call)
	}
	r.mutex.Lock()
	r.held[asked.As] = kept
	r.order = append(r.order, asked.As)
	r.mutex.Unlock()
	return kept.shown, nil
}

// reset closes and forgets everything, the newest first.
func (r *runner) reset() {
	r.mutex.Lock()
	all, order := r.held, r.order
	r.held, r.order = map[string]*held{}, nil
	r.mutex.Unlock()
	for _, name := range slices.Backward(order) {
		if kept := all[name]; kept != nil && kept.close != nil {
			kept.close()
		}
		delete(all, name)
	}
}

func described(ctx context.Context, err error) map[string]any {
	if ctx.Err() != nil {
		return map[string]any{"kind": "cancelled", "message": err.Error()}
	}
	var failed *osb.Error
	if !errors.As(err, &failed) {
		return map[string]any{"kind": "runner", "message": err.Error()}
	}
	told := map[string]any{
		"kind": failed.Kind, "message": failed.Error(), "code": failed.Code, "retryable": failed.Retryable(),
		"remedy": failed.Remedy,
	}
	if failed.Status != 0 {
		told["status"] = failed.Status
	}
	if failed.RequestID != "" {
		told["request_id"] = failed.RequestID
	}
	var cause *osb.Error
	// An error that wraps one from the wire gives that one's code.
	if errors.As(errors.Unwrap(failed), &cause) && cause.Status != 0 {
		told["code"] = cause.Code
	}
	return told
}
