// Package osb makes sandboxes for AI agents: run commands, edit files, execute code that remembers, open terminals
// and ports, in a place that is thrown away afterwards.
//
//	sandbox, err := osb.Create(ctx, "python:3.12", nil)
//	if err != nil {
//		return err
//	}
//	defer sandbox.Close(ctx)
//	output, err := sandbox.Commands.Run(ctx, "python -c 'print(6 * 7)'", nil)
//
// Close ends the sandbox, unless [Sandbox.Keep] was called. The server is found by OPEN_SANDBOX_DOMAIN and
// OPEN_SANDBOX_API_KEY, by ~/.opensandbox/config.toml, or by a [Config].
//
// The context of a call ends it. The context that a stream was opened with ends the stream: that of an
// [Execution], a [Stream], a [ByteStream] or a [TerminalConnection].
//
// Every error is an [*Error], with code, remedy and request id, but for those of the caller's own context, reader
// or file. Requests are sent again only where that is safe: those that change nothing, or that did certainly not
// arrive.
//
// It speaks to the published OpenSandbox server as well as to ours. What only ours does is marked as an extension;
// without it waiting falls back to asking again, and a stream that breaks says so.
package osb
