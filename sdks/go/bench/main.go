// Command bench measures the SDK beside bare net/http, at a server that answers at once, which leaves the client's
// own time, and at a real one. It prints a table, and ends with an error where a promise is broken.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	osb "github.com/osb-dev/osb/sdks/go"
)

const (
	warmups    = 20
	rounds     = 200
	realRounds = 30
	lines      = 1_000_000
	atOnce     = 200
)

// What the SDK promises.
const (
	ownShareMax       = 5 * time.Millisecond
	linesPerSecondMin = 500_000
	memoryMiBMax      = 20
	// A thread for every ten sandboxes is far from one each; the runtime has some of its own.
	threadsMax = atOnce / 10
)

// client is what is measured.
type client interface {
	// first makes a sandbox, waits for the first output of a command, and ends the sandbox.
	first(ctx context.Context) (time.Duration, error)
	// read counts the lines that a command prints.
	read(ctx context.Context, command string) (count int, took time.Duration, err error)
}

func main() {
	if len(os.Args) > 1 {
		serveStub()
		return
	}
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	config, err := osb.LoadConfig()
	if err != nil {
		return err
	}
	stub, stop, err := startStub()
	if err != nil {
		return err
	}
	defer stop()
	fmt.Printf("%s, %d processors\n\n| | ours | net/http |\n|---|---|---|\n", runtime.Version(), runtime.NumCPU())
	ours, bare, err := clients(osb.Config{Domain: stub, APIKey: config.APIKey})
	if err != nil {
		return err
	}
	own, err := row(ctx, "create to first output at the stub, ms (median)", ours, bare, rounds)
	if err != nil {
		return err
	}
	rate, memory, err := rows(ctx, "the stub", "many", ours, bare)
	if err != nil {
		return err
	}
	if ours, bare, err = clients(config); err != nil {
		return err
	}
	if _, err := row(ctx, "create to first output at a real server, ms (median)", ours, bare, realRounds); err != nil {
		return err
	}
	realRate, realMemory, err := rows(ctx, "a real sandbox", fmt.Sprint("seq ", lines), ours, bare)
	if err != nil {
		return err
	}
	took, threads, err := together(ctx, ours.client)
	if err != nil {
		return err
	}
	fmt.Printf("| %d sandboxes made and used at once, s | %.2f | |\n| threads that took | %d | |\n\n", atOnce, took.Seconds(), threads)
	return promises([]promise{
		{"the client's own share at most 5 ms", own <= ownShareMax}, {"500,000 lines/s", min(rate, realRate) >= linesPerSecondMin},
		{"memory is flat", max(memory, realMemory) <= memoryMiBMax}, {"no thread for each sandbox", threads <= threadsMax},
	})
}

type promise struct {
	what string
	kept bool
}

func promises(all []promise) error {
	broken := 0
	for _, each := range all {
		word := "kept"
		if !each.kept {
			word = "BROKEN"
			broken++
		}
		fmt.Printf("%-6s %s\n", word, each.what)
	}
	if broken > 0 {
		return fmt.Errorf("%d promises are broken", broken)
	}
	return nil
}

func clients(config osb.Config) (*sdk, *bare, error) {
	made, err := osb.NewClient(config)
	if err != nil {
		return nil, nil, err
	}
	base, err := made.Config().BaseURL()
	return &sdk{made}, newBare(base, config.APIKey), err
}

// row measures create to first output: ours less what bare net/http takes for the same requests is our own share.
func row(ctx context.Context, what string, ours *sdk, bare *bare, count int) (time.Duration, error) {
	var medians [2]time.Duration
	for at, each := range []client{ours, bare} {
		var times []time.Duration
		for round := range warmups + count {
			took, err := each.first(ctx)
			if err != nil {
				return 0, err
			}
			// The first rounds also pay for connections and cold caches.
			if round >= warmups {
				times = append(times, took)
			}
		}
		slices.Sort(times)
		medians[at] = times[len(times)/2]
	}
	milliseconds := func(took time.Duration) float64 { return float64(took.Microseconds()) / 1000 }
	fmt.Printf("| %s | %.2f | %.2f |\n", what, milliseconds(medians[0]), milliseconds(medians[1]))
	return medians[0], nil
}

func rows(ctx context.Context, place, command string, ours *sdk, bare *bare) (rate, mebibytes int, err error) {
	var rates, memories [2]int
	for at, each := range []client{ours, bare} {
		peak := watchMemory()
		count, took, err := each.read(ctx, command)
		memories[at] = peak()
		if err != nil {
			return 0, 0, err
		}
		if count != lines {
			return 0, 0, fmt.Errorf("%d lines came instead of %d", count, lines)
		}
		rates[at] = int(float64(lines) / took.Seconds())
	}
	fmt.Printf("| 1,000,000 lines from %s, lines/s | %d | %d |\n| memory they add, MiB | %d | %d |\n",
		place, rates[0], rates[1], memories[0], memories[1])
	return rates[0], memories[0], nil
}

// watchMemory looks at what the process has from the system until the function it returns is called, which is how much
// more that was at most, in MiB.
func watchMemory() func() int {
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	stop, done := make(chan struct{}), make(chan uint64)
	go func() {
		most := before.Sys
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			most = max(most, now.Sys)
			select {
			case <-ticker.C:
			case <-stop:
				done <- most
				return
			}
		}
	}()
	return func() int {
		close(stop)
		return int((<-done - before.Sys) >> 20)
	}
}

// together uses sandboxes at once and counts the threads of the process.
func together(ctx context.Context, client *osb.Client) (time.Duration, int, error) {
	begun := time.Now()
	failures := make(chan error, atOnce)
	var wait sync.WaitGroup
	for range atOnce {
		wait.Add(1)
		go func() {
			defer wait.Done()
			failures <- useOne(ctx, client)
		}()
	}
	wait.Wait()
	took := time.Since(begun)
	close(failures)
	for err := range failures {
		if err != nil {
			return 0, 0, err
		}
	}
	// A thread that was made stays, so that they can be counted afterwards.
	threads, err := os.ReadDir("/proc/self/task")
	return took, len(threads), err
}

func useOne(ctx context.Context, client *osb.Client) error {
	options := &osb.CreateOptions{Resources: map[string]string{"memory": "64Mi", "cpu": "0.1"}, ReadyTimeout: 2 * time.Minute}
	sandbox, err := client.Create(ctx, "host", options)
	if err != nil {
		return err
	}
	defer sandbox.Close(ctx)
	output, err := sandbox.Commands.Run(ctx, "echo hi", nil)
	if err == nil && output.Stdout != "hi\n" {
		err = fmt.Errorf("it printed %q", output.Stdout)
	}
	return err
}

// startStub starts the server that answers at once, in a process of its own, and is its address.
func startStub() (string, func(), error) {
	program, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	stub := exec.Command(program, "stub")
	stub.Stderr = os.Stderr
	output, err := stub.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := stub.Start(); err != nil {
		return "", nil, err
	}
	line := make([]byte, 64)
	count, err := output.Read(line)
	stop := func() {
		_ = stub.Process.Kill()
		_ = stub.Wait()
	}
	return strings.TrimSpace(string(line[:count])), stop, err
}
