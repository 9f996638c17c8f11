package main

import (
	"fmt"
	"io/fs"
	"strconv"
	"time"

	osb "github.com/osb-dev/osb/sdks/go"
)

// The SDK's own types as sdks/conformance/README.md writes them.

type object = map[string]any

func failureOf(failure *osb.Failure) any {
	if failure == nil {
		return nil
	}
	return object{"name": failure.Name, "value": failure.Value, "traceback": append([]string{}, failure.Traceback...)}
}

func millisecondsOf(took *time.Duration) any {
	if took == nil {
		return nil
	}
	return took.Milliseconds()
}

func resultOf(result *osb.RichResult) object {
	shown := object{"kind": result.Kind(), "by_type": result.ByType, "count": result.Count}
	if text, ok := result.Text(); ok {
		shown["text"] = text
	}
	return shown
}

func outputOf(output *osb.Output) object {
	results := []object{}
	for _, result := range output.Results {
		results = append(results, resultOf(result))
	}
	shown := object{
		"id": output.ID, "stdout": output.Stdout, "stderr": output.Stderr, "success": output.Success(),
		"error": failureOf(output.Failure), "results": results, "count": output.Count, "took_ms": millisecondsOf(output.Took),
	}
	if text := output.Text(); text != "" {
		shown["text"] = text
	}
	if code, ok := output.ExitCode(); ok {
		shown["exit_code"] = code
	}
	switch ending := output.Ending(); {
	case ending.Signal != "":
		shown["ending"] = object{"kind": "signal", "signal": ending.Signal}
	case ending.Code != nil:
		shown["ending"] = object{"kind": "code", "code": *ending.Code}
	default:
		shown["ending"] = object{"kind": "failed"}
	}
	return shown
}

func eventOf(event osb.Event) any {
	shown := object{}
	switch event.Type {
	case osb.Started:
		shown["id"] = event.ID
	case osb.Stdout, osb.Stderr:
		shown["text"] = event.Text
	case osb.Value:
		shown = resultOf(event.Result)
	case osb.Counted:
		shown["count"] = event.Count
	case osb.Errored:
		shown = failureOf(event.Failure).(object)
	case osb.Completed:
		shown["took_ms"] = millisecondsOf(event.Took)
	}
	shown["type"] = event.Type
	return shown
}

func terminalEventOf(event osb.TerminalEvent) any {
	shown := object{"type": event.Type}
	switch event.Type {
	case osb.TerminalOutput, osb.TerminalErrorOutput:
		shown["text"] = string(event.Bytes)
	case osb.TerminalReplay:
		shown["text"], shown["offset"] = string(event.Bytes), event.Offset
	case osb.TerminalRefused:
		shown["code"], shown["message"] = event.Code, event.Reason
	case osb.TerminalExit:
		shown["code"] = event.ExitCode
		if event.Signal != 0 {
			shown["signal"] = event.Signal
		}
	case osb.TerminalClosed:
		shown["code"], shown["reason"] = event.CloseCode, event.Reason
	}
	return shown
}

func fileInfoOf(info osb.FileInfo) object {
	bits := uint32(info.Mode.Perm())
	for special, bit := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if info.Mode&special != 0 {
			bits |= bit
		}
	}
	digits, err := strconv.Atoi(fmt.Sprintf("%o", bits))
	if err != nil {
		panic(err)
	}
	shown := object{
		"path": info.Path, "size": info.Size, "modified_at": info.ModifiedAt, "created_at": info.CreatedAt,
		"owner": info.Owner, "group": info.Group, "mode": digits, "type": info.Type,
	}
	if info.RawPath != "" {
		shown["raw_path"] = info.RawPath
	}
	return shown
}

func fileInfosOf(infos []osb.FileInfo) []object {
	shown := []object{}
	for _, info := range infos {
		shown = append(shown, fileInfoOf(info))
	}
	return shown
}
