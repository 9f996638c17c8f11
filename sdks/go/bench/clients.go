package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	osb "github.com/osb-dev/osb/sdks/go"
)

type sdk struct{ client *osb.Client }

func (s *sdk) first(ctx context.Context) (time.Duration, error) {
	begun := time.Now()
	sandbox, err := s.client.Create(ctx, "host", nil)
	if err != nil {
		return 0, err
	}
	defer sandbox.Close(ctx)
	execution, err := sandbox.Commands.Stream(ctx, "echo hi", nil)
	if err != nil {
		return 0, err
	}
	defer execution.Close()
	for {
		event, err := execution.Next()
		if err != nil || event.Type == osb.Stdout {
			return time.Since(begun), err
		}
	}
}

func (s *sdk) read(ctx context.Context, command string) (int, time.Duration, error) {
	sandbox, err := s.client.Create(ctx, "host", nil)
	if err != nil {
		return 0, 0, err
	}
	defer sandbox.Close(ctx)
	begun := time.Now()
	execution, err := sandbox.Commands.Stream(ctx, command, nil)
	if err != nil {
		return 0, 0, err
	}
	count := 0
	for event, err := range execution.Events() {
		if err != nil {
			return 0, 0, err
		}
		if event.Type == osb.Stdout {
			count += strings.Count(event.Text, "\n")
		}
	}
	return count, time.Since(begun), nil
}

// bare makes the same requests by net/http and encoding/json, and nothing else: no retries, no resuming, no checks.
type bare struct {
	base, key string
	client    *http.Client
}

func newBare(base, key string) *bare {
	return &bare{base, key, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8, DisableCompression: true}}}
}

func (b *bare) ask(ctx context.Context, method, url string, body, answer any) (io.ReadCloser, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, url, content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("OPEN-SANDBOX-API-KEY", b.key)
	request.Header.Set("Content-Type", "application/json")
	response, err := b.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s %s: %s", method, url, response.Status)
	}
	if answer == nil {
		return response.Body, nil
	}
	defer response.Body.Close()
	return nil, json.NewDecoder(response.Body).Decode(answer)
}

// start makes a sandbox and starts a command: its output, and how the sandbox is ended.
func (b *bare) start(ctx context.Context, command string) (io.ReadCloser, func(), error) {
	request := map[string]any{
		"image": map[string]string{"uri": "host"}, "timeout": 600, "entrypoint": []string{"tail", "-f", "/dev/null"},
		"resourceLimits": map[string]string{"cpu": "1", "memory": "2Gi"},
	}
	var made struct{ ID string }
	if _, err := b.ask(ctx, http.MethodPost, b.base+"/sandboxes", request, &made); err != nil {
		return nil, nil, err
	}
	at := b.base + "/sandboxes/" + made.ID
	end := func() {
		if body, err := b.ask(ctx, http.MethodDelete, at, nil, nil); err == nil {
			body.Close()
		}
	}
	var exec struct{ Endpoint string }
	if _, err := b.ask(ctx, http.MethodGet, at+"/endpoints/44772", nil, &exec); err != nil {
		return nil, end, err
	}
	ping, err := b.ask(ctx, http.MethodGet, "http://"+exec.Endpoint+"/ping", nil, nil)
	if err != nil {
		return nil, end, err
	}
	if _, err := io.Copy(io.Discard, ping); err != nil {
		return nil, end, err
	}
	ping.Close()
	output, err := b.ask(ctx, http.MethodPost, "http://"+exec.Endpoint+"/command", map[string]string{"command": command}, nil)
	return output, end, err
}

func (b *bare) first(ctx context.Context) (time.Duration, error) {
	begun := time.Now()
	_, took, err := b.count(ctx, "echo hi", func(int) (bool, time.Duration) { return true, time.Since(begun) })
	return took, err
}

func (b *bare) read(ctx context.Context, command string) (int, time.Duration, error) {
	begun := time.Now()
	count, _, err := b.count(ctx, command, func(int) (bool, time.Duration) { return false, 0 })
	return count, time.Since(begun), err
}

func (b *bare) count(ctx context.Context, command string, enough func(int) (bool, time.Duration)) (int, time.Duration, error) {
	output, end, err := b.start(ctx, command)
	if end != nil {
		defer end()
	}
	if err != nil {
		return 0, 0, err
	}
	defer output.Close()
	scanner, count := bufio.NewScanner(output), 0
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		if len(scanner.Bytes()) == 0 {
			continue
		}
		var event struct{ Type, Text string }
		if err := json.Unmarshal(scanner.Bytes(), &event); err != nil {
			return 0, 0, err
		}
		if event.Type != "stdout" {
			continue
		}
		count += strings.Count(event.Text, "\n")
		if isEnough, took := enough(count); isEnough {
			return count, took, nil
		}
	}
	return count, 0, scanner.Err()
}
