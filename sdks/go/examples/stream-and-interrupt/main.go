// Command stream-and-interrupt follows a command as it prints, writes to its input, and stops it by its id.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	osb "github.com/osb-dev/osb/sdks/go"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	sandbox, err := osb.Create(ctx, cmp.Or(os.Getenv("IMAGE"), "python:3.12"), nil)
	if err != nil {
		return err
	}
	defer sandbox.Close(ctx)
	commands := sandbox.Commands
	execution, err := commands.Stream(ctx, "read name; echo hello $name; sleep infinity", &osb.CommandOptions{StdinOpen: true})
	if err != nil {
		return err
	}
	for event, err := range execution.Events() {
		if err != nil {
			return err
		}
		switch event.Type {
		case osb.Started:
			_, err = commands.WriteStdin(ctx, event.ID, []byte("world\n"), false)
		case osb.Stdout:
			fmt.Println("it said:", strings.TrimSpace(event.Text))
			err = commands.Interrupt(ctx, execution.ID())
		case osb.Errored:
			fmt.Println("and ended:", event.Failure.Traceback[0])
		}
		if err != nil {
			return err
		}
	}
	return nil
}
