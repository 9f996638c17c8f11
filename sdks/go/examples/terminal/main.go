// Command terminal types into a terminal and reads its screen.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"os"

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
	terminal, err := sandbox.Terminals.Create(ctx, nil)
	if err != nil {
		return err
	}
	connection, err := terminal.Connect(ctx, &osb.TerminalOptions{Size: &osb.TerminalSize{Columns: 100, Rows: 30}})
	if err != nil {
		return err
	}
	defer connection.Close()
	if _, err := io.WriteString(connection, "stty size; exit\n"); err != nil {
		return err
	}
	for event, err := range connection.Events() {
		if err != nil {
			return err
		}
		switch event.Type {
		case osb.TerminalOutput:
			os.Stdout.Write(event.Bytes)
		case osb.TerminalExit:
			fmt.Println("the shell ended with", event.ExitCode)
		}
	}
	return nil
}
