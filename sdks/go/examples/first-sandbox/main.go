// Command first-sandbox makes a sandbox, runs a command, runs code that remembers, and reads output as it comes. The
// server is the one of OPEN_SANDBOX_DOMAIN and OPEN_SANDBOX_API_KEY; IMAGE is what the sandbox starts from.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	osb "github.com/osb-dev/osb/sdks/go"
)

func main() {
	if err := run(context.Background()); err != nil {
		var failed *osb.Error
		if errors.As(err, &failed) {
			log.Fatalf("[%s] %s; %s (request %s)", failed.Code, failed.Message, failed.Remedy, failed.RequestID)
		}
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	sandbox, err := osb.Create(ctx, cmp.Or(os.Getenv("IMAGE"), "python:3.12"), nil)
	if err != nil {
		return err
	}
	defer sandbox.Close(ctx)

	output, err := sandbox.Commands.Run(ctx, "echo 'Hello Sandbox!'; exit 3", nil)
	if err != nil {
		return err
	}
	code, _ := output.ExitCode()
	fmt.Print(output.Stdout, "exit code ", code, "\n")

	if _, err := sandbox.Code.Run(ctx, "x = 20", nil); err != nil {
		return err
	}
	sum, err := sandbox.Code.Run(ctx, "x + 1", nil)
	if err != nil {
		return err
	}
	fmt.Println("x + 1 is", sum.Text())

	if err := sandbox.Files.WriteText(ctx, "/tmp/data.csv", "a,b\n1,2\n", nil); err != nil {
		return err
	}
	lines, err := sandbox.Commands.Stream(ctx, "wc -l /tmp/data.csv", nil)
	if err != nil {
		return err
	}
	for event, err := range lines.Events() {
		if err != nil {
			return err
		}
		fmt.Print(event.Text)
	}
	return nil
}
