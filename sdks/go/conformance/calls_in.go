package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"time"

	osb "github.com/osb-dev/osb/sdks/go"
	"github.com/osb-dev/osb/sdks/go/wire"
)

var commandCalls = map[string]call{
	"commands.run": shaped(outputOf, func(ctx context.Context, s *osb.Sandbox, w *arguments) (*osb.Output, error) {
		return s.Commands.Run(ctx, w.Command, w.commandOptions())
	}),
	"commands.start": started(func(ctx context.Context, s *osb.Sandbox, w *arguments) (*osb.Execution, error) {
		return s.Commands.Stream(ctx, w.Command, w.commandOptions())
	}),
	"commands.background": shaped(under[string]("id"), func(ctx context.Context, s *osb.Sandbox, w *arguments) (string, error) {
		return s.Commands.Background(ctx, w.Command, w.commandOptions())
	}),
	"commands.follow": started(func(ctx context.Context, s *osb.Sandbox, w *arguments) (*osb.Execution, error) {
		after := int64(0)
		if w.After != nil {
			after = *w.After
		}
		return s.Commands.Follow(ctx, w.ID, after)
	}),
	"commands.status": plain(func(ctx context.Context, s *osb.Sandbox, w *arguments) (wire.CommandStatusResponse, error) {
		return s.Commands.Status(ctx, w.ID)
	}),
	"commands.list": plain(func(ctx context.Context, s *osb.Sandbox, _ *arguments) ([]wire.CommandStatusResponse, error) {
		return s.Commands.List(ctx)
	}),
	"commands.logs": onObject(func(ctx context.Context, s *osb.Sandbox, w *arguments) (any, error) {
		logs, err := s.Commands.Logs(ctx, w.ID, w.Cursor)
		return object{"text": logs.Text, "cursor": logs.Cursor}, err
	}),
	"commands.interrupt": silent(func(ctx context.Context, s *osb.Sandbox, w *arguments) error { return s.Commands.Interrupt(ctx, w.ID) }),
	"commands.write_stdin": shaped(under[int64]("written"), func(ctx context.Context, s *osb.Sandbox, w *arguments) (int64, error) {
		return s.Commands.WriteStdin(ctx, w.ID, []byte(w.Text), w.Close)
	}),
	"commands.set_env": silent(func(ctx context.Context, s *osb.Sandbox, w *arguments) error {
		return s.Commands.SetEnv(ctx, w.Variables)
	}),
	"execution.next": onObject(func(_ context.Context, e *osb.Execution, _ *arguments) (any, error) {
		event, err := e.Next()
		return orNull(event, err, eventOf)
	}),
	"execution.output": shaped(outputOf, func(_ context.Context, e *osb.Execution, _ *arguments) (*osb.Output, error) { return e.Output() }),
	"execution.close":  silent(func(_ context.Context, e *osb.Execution, _ *arguments) error { return e.Close() }),
}

func (a *arguments) sessionOptions() *osb.SessionRunOptions {
	return &osb.SessionRunOptions{Cwd: a.Cwd, Timeout: duration(a.TimeoutMS, time.Millisecond)}
}

var shellCalls = map[string]call{
	"sessions.create": onObject(func(ctx context.Context, s *osb.Sandbox, w *arguments) (any, error) {
		session, err := s.Sessions.Create(ctx, w.Cwd)
		if err != nil {
			return nil, err
		}
		return &held{value: session, shown: object{"id": session.ID}}, nil
	}),
	"session.run": shaped(outputOf, func(ctx context.Context, s *osb.Session, w *arguments) (*osb.Output, error) {
		return s.Run(ctx, w.Command, w.sessionOptions())
	}),
	"session.start": started(func(ctx context.Context, s *osb.Session, w *arguments) (*osb.Execution, error) {
		return s.Stream(ctx, w.Command, w.sessionOptions())
	}),
	"session.interrupt": silent(func(ctx context.Context, s *osb.Session, _ *arguments) error { return s.Interrupt(ctx) }),
	"session.delete":    silent(func(ctx context.Context, s *osb.Session, _ *arguments) error { return s.Delete(ctx) }),
	"terminals.create": onObject(func(ctx context.Context, s *osb.Sandbox, w *arguments) (any, error) {
		terminal, err := s.Terminals.Create(ctx, &osb.NewTerminal{Command: w.Command, Cwd: w.Cwd, Size: w.terminalSize()})
		if err != nil {
			return nil, err
		}
		return &held{value: terminal, shown: object{"id": terminal.ID}}, nil
	}),
	"terminal.status": plain(func(ctx context.Context, t *osb.Terminal, _ *arguments) (wire.PtyStatus, error) { return t.Status(ctx) }),
	"terminal.delete": silent(func(ctx context.Context, t *osb.Terminal, _ *arguments) error { return t.Delete(ctx) }),
	"terminal.connect": onObject(func(_ context.Context, t *osb.Terminal, w *arguments) (any, error) {
		options := &osb.TerminalOptions{Pipes: w.Pipes, Since: w.Since, TakeOver: w.TakeOver, Size: w.terminalSize()}
		connection, err := t.Connect(context.Background(), options)
		if err != nil {
			return nil, err
		}
		return &held{value: connection, close: func() { _ = connection.Close() }}, nil
	}),
	"connection.next": onObject(func(_ context.Context, c *osb.TerminalConnection, _ *arguments) (any, error) {
		event, err := c.Next()
		return orNull(event, err, terminalEventOf)
	}),
	"connection.write": silent(func(_ context.Context, c *osb.TerminalConnection, w *arguments) error {
		_, err := io.WriteString(c, w.Text)
		return err
	}),
	"connection.resize": silent(func(_ context.Context, c *osb.TerminalConnection, w *arguments) error {
		return c.Resize(w.Columns, w.Rows)
	}),
	"connection.signal": silent(func(_ context.Context, c *osb.TerminalConnection, w *arguments) error { return c.Signal(w.Signal) }),
	"connection.ping":   silent(func(_ context.Context, c *osb.TerminalConnection, _ *arguments) error { return c.Ping() }),
	"connection.close":  silent(func(_ context.Context, c *osb.TerminalConnection, _ *arguments) error { return c.Close() }),
}

func (a *arguments) terminalSize() *osb.TerminalSize {
	if a.Size == nil {
		return nil
	}
	return &osb.TerminalSize{Columns: a.Size[0], Rows: a.Size[1]}
}

func (a *arguments) codeOptions() *osb.CodeOptions {
	return &osb.CodeOptions{Language: a.Language, Context: a.Context, Timeout: duration(a.TimeoutMS, time.Millisecond)}
}

var codeCalls = map[string]call{
	"code.run": shaped(outputOf, func(ctx context.Context, s *osb.Sandbox, w *arguments) (*osb.Output, error) {
		return s.Code.Run(ctx, w.Code, w.codeOptions())
	}),
	"code.start": started(func(ctx context.Context, s *osb.Sandbox, w *arguments) (*osb.Execution, error) {
		return s.Code.Stream(ctx, w.Code, w.codeOptions())
	}),
	"code.create_context": plain(func(ctx context.Context, s *osb.Sandbox, w *arguments) (wire.CodeContext, error) {
		return s.Code.CreateContext(ctx, w.Language, &osb.ContextOptions{Cwd: w.Cwd})
	}),
	"code.get_context": plain(func(ctx context.Context, s *osb.Sandbox, w *arguments) (wire.CodeContext, error) {
		return s.Code.GetContext(ctx, w.ID)
	}),
	"code.delete_context": silent(func(ctx context.Context, s *osb.Sandbox, w *arguments) error { return s.Code.DeleteContext(ctx, w.ID) }),
	"code.interrupt":      silent(func(ctx context.Context, s *osb.Sandbox, w *arguments) error { return s.Code.Interrupt(ctx, w.ID) }),
	"code.list_contexts": plain(func(ctx context.Context, s *osb.Sandbox, w *arguments) ([]wire.CodeContext, error) {
		return s.Code.ListContexts(ctx, w.Language)
	}),
	"code.delete_contexts": silent(func(ctx context.Context, s *osb.Sandbox, w *arguments) error {
		return s.Code.DeleteContexts(ctx, w.Language)
	}),
}

// onFiles is a call on the files of a sandbox, as the user that is named.
func onFiles[R any](shape func(R) any, made func(ctx context.Context, f *osb.Files, with *arguments) (R, error)) call {
	return func(ctx context.Context, on any, with *arguments) (any, error) {
		files := on.(*osb.Sandbox).Files
		if len(with.AsUser) == 2 {
			files = files.AsUser(with.AsUser[0], with.AsUser[1])
		}
		result, err := made(ctx, files, with)
		if err != nil {
			return nil, err
		}
		return shape(result), nil
	}
}

func asIs[R any](result R) any { return result }

func inBase64(content []byte) any {
	return object{"base64": base64.StdEncoding.EncodeToString(content)}
}

func asText(text string) any { return object{"text": text} }

func infosAsIs(infos []osb.FileInfo) any { return fileInfosOf(infos) }

// quiet is a call on files without a result.
func quiet(made func(ctx context.Context, f *osb.Files, with *arguments) error) call {
	return onFiles(asIs[any], func(ctx context.Context, f *osb.Files, w *arguments) (any, error) { return nil, made(ctx, f, w) })
}

var fileCalls = map[string]call{
	"files.read":      onFiles(inBase64, func(ctx context.Context, f *osb.Files, w *arguments) ([]byte, error) { return f.Read(ctx, w.Path) }),
	"files.read_text": onFiles(asText, func(ctx context.Context, f *osb.Files, w *arguments) (string, error) { return f.ReadText(ctx, w.Path) }),
	"files.read_range": onFiles(inBase64, func(ctx context.Context, f *osb.Files, w *arguments) ([]byte, error) {
		return f.ReadRange(ctx, w.Path, w.Start, w.End)
	}),
	"files.read_lines": onFiles(asText, func(ctx context.Context, f *osb.Files, w *arguments) (string, error) {
		return f.ReadLines(ctx, w.Path, w.First, w.Count)
	}),
	"files.download": onFiles(asIs[object], func(ctx context.Context, f *osb.Files, w *arguments) (object, error) {
		stream, err := f.Download(ctx, w.Path)
		if err != nil {
			return nil, err
		}
		defer stream.Close()
		return digest(stream)
	}),
	"files.write": quiet(func(ctx context.Context, f *osb.Files, w *arguments) error {
		permission := w.permission()
		return f.Write(ctx, w.Path, w.contents(), &permission)
	}),
	"files.write_all": quiet(func(ctx context.Context, f *osb.Files, w *arguments) error {
		var files []osb.WriteFile
		for _, raw := range decode[[]json.RawMessage](w.Files) {
			given := decode[arguments](raw)
			contents := readerOf(given.contents())
			files = append(files, osb.WriteFile{Path: given.Path, Contents: contents, Permission: given.permission()})
		}
		return f.WriteAll(ctx, files)
	}),
	"files.upload": onFiles(asIs[object], func(ctx context.Context, f *osb.Files, w *arguments) (object, error) {
		if err := f.Upload(ctx, w.Path, io.LimitReader(&madeUp{}, w.Bytes), nil); err != nil {
			return nil, err
		}
		return digest(io.LimitReader(&madeUp{}, w.Bytes))
	}),
	"files.info": onFiles(asIs[object], func(ctx context.Context, f *osb.Files, w *arguments) (object, error) {
		found, err := f.Info(ctx, w.Paths...)
		shown := object{}
		for path, info := range found {
			shown[path] = fileInfoOf(info)
		}
		return shown, err
	}),
	"files.exists": onFiles(asIs[object], func(ctx context.Context, f *osb.Files, w *arguments) (object, error) {
		exists, err := f.Exists(ctx, w.Path)
		return object{"exists": exists}, err
	}),
	"files.list": onFiles(infosAsIs, func(ctx context.Context, f *osb.Files, w *arguments) ([]osb.FileInfo, error) {
		depth := 1
		if w.Depth != nil {
			depth = *w.Depth
		}
		return f.List(ctx, w.Path, depth)
	}),
	"files.search": onFiles(infosAsIs, func(ctx context.Context, f *osb.Files, w *arguments) ([]osb.FileInfo, error) {
		return f.Search(ctx, w.Path, w.Pattern)
	}),
	"files.rename": quiet(func(ctx context.Context, f *osb.Files, w *arguments) error { return f.Rename(ctx, w.From, w.To) }),
	"files.delete": quiet(func(ctx context.Context, f *osb.Files, w *arguments) error { return f.Delete(ctx, w.Paths...) }),
	"files.create_directories": quiet(func(ctx context.Context, f *osb.Files, w *arguments) error {
		return f.CreateDirectories(ctx, w.Paths, nil)
	}),
	"files.delete_directories": quiet(func(ctx context.Context, f *osb.Files, w *arguments) error {
		return f.DeleteDirectories(ctx, w.Paths...)
	}),
	"files.set_permissions": quiet(func(ctx context.Context, f *osb.Files, w *arguments) error {
		return f.SetPermissions(ctx, map[string]osb.Permission{w.Path: w.permission()})
	}),
	"files.replace": onFiles(asIs[object], func(ctx context.Context, f *osb.Files, w *arguments) (object, error) {
		count, err := f.Replace(ctx, w.Path, w.Old, w.New)
		return object{"count": count}, err
	}),
	"files.download_archive": onFiles(asIs[object], func(ctx context.Context, f *osb.Files, w *arguments) (object, error) {
		archive, err := f.DownloadArchive(ctx, w.Path)
		if err != nil {
			return nil, err
		}
		return entriesOf(archive, true)
	}),
	"files.upload_archive": onFiles(asIs[wire.ArchiveResponse], func(ctx context.Context, f *osb.Files, w *arguments) (wire.ArchiveResponse, error) {
		return f.UploadArchive(ctx, w.Path, packed(decode[map[string]string](w.Files)))
	}),
}

var egressCalls = map[string]call{
	"egress.policy": plain(func(ctx context.Context, s *osb.Sandbox, _ *arguments) (wire.PolicyStatusResponse, error) {
		return s.Egress.Policy(ctx)
	}),
	"egress.patch": plain(func(ctx context.Context, s *osb.Sandbox, w *arguments) (wire.PolicyStatusResponse, error) {
		return s.Egress.Patch(ctx, w.Rules)
	}),
	"egress.delete": plain(func(ctx context.Context, s *osb.Sandbox, w *arguments) (wire.PolicyStatusResponse, error) {
		return s.Egress.Delete(ctx, w.Targets)
	}),
	"egress.replace": plain(func(ctx context.Context, s *osb.Sandbox, w *arguments) (wire.PolicyStatusResponse, error) {
		return s.Egress.Set(ctx, decode[wire.NetworkPolicy](w.Policy))
	}),
	"vault.create": plain(func(ctx context.Context, s *osb.Sandbox, w *arguments) (wire.CredentialVaultState, error) {
		return s.CredentialVault.Create(ctx, decode[wire.CredentialVaultCreateRequest](w.Request))
	}),
	"vault.get": plain(func(ctx context.Context, s *osb.Sandbox, _ *arguments) (wire.CredentialVaultState, error) {
		return s.CredentialVault.Get(ctx)
	}),
	"vault.patch": plain(func(ctx context.Context, s *osb.Sandbox, w *arguments) (wire.CredentialVaultState, error) {
		return s.CredentialVault.Patch(ctx, decode[wire.CredentialVaultMutationRequest](w.Request))
	}),
	"vault.delete": silent(func(ctx context.Context, s *osb.Sandbox, _ *arguments) error { return s.CredentialVault.Delete(ctx) }),
	"vault.credentials": plain(func(ctx context.Context, s *osb.Sandbox, _ *arguments) (wire.CredentialListResponse, error) {
		return s.CredentialVault.Credentials(ctx)
	}),
	"vault.credential": plain(func(ctx context.Context, s *osb.Sandbox, w *arguments) (wire.CredentialMetadata, error) {
		return s.CredentialVault.Credential(ctx, w.Name)
	}),
	"vault.bindings": plain(func(ctx context.Context, s *osb.Sandbox, _ *arguments) (wire.CredentialBindingListResponse, error) {
		return s.CredentialVault.Bindings(ctx)
	}),
	"vault.binding": plain(func(ctx context.Context, s *osb.Sandbox, w *arguments) (wire.CredentialBindingMetadata, error) {
		return s.CredentialVault.Binding(ctx, w.Name)
	}),
}

var poolCalls = map[string]call{
	"pool.start": onObject(func(_ context.Context, c *osb.Client, w *arguments) (any, error) {
		pool := osb.NewPool(c, w.Image, osb.PoolOptions{
			Sandbox: osb.CreateOptions{Metadata: w.Metadata, Resources: w.Resources}, MaxIdle: w.MaxIdle,
			IdleTimeout: duration(w.IdleTimeoutS, time.Second), FailWhenEmpty: decode[string](w.Policy) == "fail",
		})
		return &held{value: pool, close: func() { _ = pool.Shutdown(context.Background()) }}, nil
	}),
	"pool.acquire": onObject(func(ctx context.Context, p *osb.Pool, w *arguments) (any, error) {
		return heldSandbox(p.Acquire(ctx, w.lifetime()))
	}),
	"pool.status": onObject(func(_ context.Context, p *osb.Pool, _ *arguments) (any, error) {
		status := p.Status()
		return object{"idle": status.Idle, "warming": status.Warming, "max_idle": status.MaxIdle, "is_degraded": status.Degraded}, nil
	}),
	"pool.resize": silent(func(ctx context.Context, p *osb.Pool, w *arguments) error { return p.Resize(ctx, w.MaxIdle) }),
	"pool.wait_until_warm": silent(func(ctx context.Context, p *osb.Pool, w *arguments) error {
		return p.WaitUntilWarm(ctx, duration(w.TimeoutMS, time.Millisecond))
	}),
	"pool.shutdown": silent(func(ctx context.Context, p *osb.Pool, _ *arguments) error { return p.Shutdown(ctx) }),
}
