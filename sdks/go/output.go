package osb

import (
	"strconv"
	"strings"
	"time"
)

// Output is everything an execution gave.
type Output struct {
	// ID is what to ask by.
	ID string
	// Stdout is its output.
	Stdout string
	// Stderr is its error output.
	Stderr string
	// Results are values and displays of code.
	Results []*RichResult
	// Failure is how it failed; nil if it did not.
	Failure *Failure
	// Count is how many cells the context has run; 0 for commands.
	Count int64
	// Took is how long it took, where the daemon says so.
	Took *time.Duration

	isComplete bool
}

// Ending is how an execution ended: with a code, by a signal, or neither, which is an exception or that it
// did not start.
type Ending struct {
	// Code is set when it ended with one.
	Code *int
	// Signal is named as killed, terminated and so on.
	Signal string
}

// ExitCode is the code it ended with: 0 when it completed, -1 for a signal. There is none when it did not
// start or was code that failed.
func (o *Output) ExitCode() (code int, ok bool) {
	if o.Failure == nil {
		return 0, o.isComplete
	}
	code, err := strconv.Atoi(o.Failure.Value)
	return code, err == nil
}

// Ending is how it ended.
func (o *Output) Ending() Ending {
	if o.Failure != nil && len(o.Failure.Traceback) > 0 {
		if signal, ok := strings.CutPrefix(o.Failure.Traceback[0], "signal: "); ok {
			return Ending{Signal: signal}
		}
	}
	if code, ok := o.ExitCode(); ok {
		return Ending{Code: &code}
	}
	return Ending{}
}

// Success says whether it succeeded.
func (o *Output) Success() bool { return o.Failure == nil && o.isComplete }

// Text is the text of the last value of code; empty where there is none.
func (o *Output) Text() string {
	for at := len(o.Results) - 1; at >= 0; at-- {
		if text, ok := o.Results[at].Text(); ok {
			return text
		}
	}
	return ""
}

// collector puts an output together.
type collector struct {
	output         Output
	stdout, stderr strings.Builder
}

func (c *collector) add(event Event) {
	switch event.Type {
	case Started:
		c.output.ID = event.ID
	case Stdout:
		c.stdout.WriteString(event.Text)
	case Stderr:
		c.stderr.WriteString(event.Text)
	case Value:
		c.output.Results = append(c.output.Results, event.Result)
	case Counted:
		c.output.Count = event.Count
	case Errored:
		c.output.Failure = event.Failure
	case Completed:
		c.output.Took = event.Took
		c.output.isComplete = true
	}
}

func (c *collector) finish() *Output {
	c.output.Stdout, c.output.Stderr = c.stdout.String(), c.stderr.String()
	return &c.output
}
