// Command many-at-once uses twenty sandboxes at once, from a pool that keeps some ready.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	osb "github.com/osb-dev/osb/sdks/go"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	config, err := osb.LoadConfig()
	if err != nil {
		return err
	}
	client, err := osb.NewClient(config)
	if err != nil {
		return err
	}
	pool := osb.NewPool(client, cmp.Or(os.Getenv("IMAGE"), "python:3.12"), osb.PoolOptions{MaxIdle: 4})
	defer pool.Shutdown(ctx)

	var wait sync.WaitGroup
	squares, failures := make([]string, 20), make([]error, 20)
	for at := range squares {
		wait.Add(1)
		go func() {
			defer wait.Done()
			squares[at], failures[at] = square(ctx, pool, at)
		}()
	}
	wait.Wait()
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	fmt.Println(strings.Join(squares, " "))
	return nil
}

func square(ctx context.Context, pool *osb.Pool, value int) (string, error) {
	sandbox, err := pool.Acquire(ctx, 2*time.Minute)
	if err != nil {
		return "", err
	}
	defer sandbox.Close(ctx)
	argv := []string{"echo", strconv.Itoa(value * value)}
	output, err := sandbox.Commands.Run(ctx, "", &osb.CommandOptions{Argv: argv})
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(output.Stdout), nil
}
