//go:build live

package osb

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"image/jpeg"
	"image/png"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/osb-dev/osb/sdks/go/wire"
)

// The SDK at a real server, for what the shared scenarios do not see: how it feels in this language.

// liveTime is more than any of these takes; it only keeps a broken one from hanging.
const liveTime = 2 * time.Minute

func live(t *testing.T) (context.Context, *Client) {
	t.Parallel()
	config, err := LoadConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), liveTime)
	t.Cleanup(cancel)
	return ctx, client
}

func liveSandbox(t *testing.T, options *CreateOptions) (context.Context, *Sandbox) {
	ctx, client := live(t)
	sandbox, err := client.Create(ctx, "host", options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sandbox.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return ctx, sandbox
}

// must is a value of which the error is the end of a test.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLiveCloseEndsASandboxUnlessItIsKept(t *testing.T) {
	ctx, client := live(t)
	made := must(Create(ctx, "host", &CreateOptions{Client: client, Name: "scoped", Env: map[string]string{"A": "b"}}))
	equal(t, must(made.Info(ctx)).Metadata["name"], "scoped")
	equal(t, must(made.Commands.Run(ctx, "echo $A", nil)).Stdout, "b\n")
	over, cancel := context.WithCancel(ctx)
	cancel()
	ok(t, made.Close(over))
	if _, err := client.Get(ctx, made.ID); !isNotFound(err) || asError(err).RequestID == "" {
		t.Errorf("a deferred Close did not count after its context: %v", err)
	}
	kept := must(client.Create(ctx, "host", nil))
	kept.Keep()
	ok(t, kept.Close(ctx))
	ok(t, must(Connect(ctx, kept.ID, nil)).Close(ctx))
	equal(t, must(kept.Info(ctx)).Status.State, wire.SandboxStateRunning)
	ok(t, kept.Kill(ctx))
	ok(t, kept.Kill(ctx))
	var key [8]byte
	must(rand.Read(key[:]))
	options := &CreateOptions{IdempotencyKey: hex.EncodeToString(key[:])}
	first, second := must(client.Create(ctx, "host", options)), must(client.Create(ctx, "host", options))
	equal(t, first.ID, second.ID)
	ok(t, first.Close(ctx))
}

func TestLiveDesktop(t *testing.T) {
	ctx, sandbox := liveSandbox(t, nil)
	desktop := NewDesktop(sandbox)
	if _, err := desktop.Info(ctx); !errors.Is(err, Failed) || !strings.Contains(err.Error(), "images browser and desktop") {
		t.Errorf("a sandbox without a desktop does not say so: %v", err)
	}
	helper := must(os.Open(os.Getenv("OSB_DESKTOP_BIN")))
	defer helper.Close()
	ok(t, sandbox.Files.Upload(ctx, "/tmp/helper", helper, &Permission{Mode: 0o755}))
	// What the entrypoint of a graphical image does.
	must(sandbox.Commands.Background(ctx, "Xtigervnc :1 -geometry 640x480 -depth 24 -SecurityTypes None -localhost -ac "+
		"-rfbport 5901 -displayfd 3 3>/tmp/display >/dev/null 2>&1 & until [ -s /tmp/display ]; do sleep 0.02; done; "+
		"DISPLAY=:1 xterm -geometry 80x24+0+0 & exec /tmp/helper", nil))
	ok(t, desktop.Ready(ctx, 0))
	info := must(desktop.Info(ctx))
	equal(t, [2]int{info.Width, info.Height}, [2]int{640, 480})
	shown := must(png.DecodeConfig(bytes.NewReader(must(desktop.Screenshot(ctx, nil)))))
	equal(t, [2]int{shown.Width, shown.Height}, [2]int{640, 480})
	part := must(desktop.Screenshot(ctx, &PictureOptions{Region: &Region{Width: 64, Height: 48}, Format: "jpeg", Quality: 50}))
	shown = must(jpeg.DecodeConfig(bytes.NewReader(part)))
	equal(t, [2]int{shown.Width, shown.Height}, [2]int{64, 48})
	// In the coordinates of a picture of half the size.
	must(desktop.Screenshot(ctx, &PictureOptions{MaxEdge: 320}))
	seen := must(desktop.ActAndSee(ctx, nil, Click(&Point{100, 100}, nil), TypeText("echo ünïcode >/tmp/typed"), PressKeys("Return")))
	equal(t, must(png.DecodeConfig(bytes.NewReader(seen))).Width, 640)
	// The middle of what that pixel of the picture shows.
	equal(t, must(desktop.Info(ctx)).Cursor, Point{201, 201})
	output := must(sandbox.Commands.Run(ctx, "until [ -s /tmp/typed ]; do sleep 0.02; done; cat /tmp/typed", nil))
	equal(t, output.Stdout, "ünïcode\n")
	ok(t, desktop.SetClipboard(ctx, "kept"))
	equal(t, must(desktop.Clipboard(ctx)), "kept")
	must(desktop.Windows(ctx))
	ok(t, desktop.Resize(ctx, 800, 600))
	equal(t, must(desktop.Info(ctx)).Width, 800)
	if link := must(desktop.LiveView(ctx, true)); !strings.Contains(link, "opensandbox_token=") {
		t.Errorf("the live view has no token: %s", link)
	}
	if err := desktop.ActOnScreen(ctx, Move(Point{5000, 0})); asError(err) == nil || asError(err).Status != 400 {
		t.Errorf("a place outside of the screen is taken: %v", err)
	}
}

func TestLiveCommands(t *testing.T) {
	ctx, sandbox := liveSandbox(t, nil)
	commands := sandbox.Commands
	var stdout, stderr bytes.Buffer
	output := must(commands.Run(ctx, "echo out; echo err >&2; exit 3", &CommandOptions{Stdout: &stdout, Stderr: &stderr}))
	code, _ := output.ExitCode()
	equal(t, []any{output.Stdout, output.Stderr, code, output.Success()}, []any{"out\n", "err\n", 3, false})
	equal(t, []string{stdout.String(), stderr.String()}, []string{"out\n", "err\n"})
	equal(t, must(commands.Run(ctx, "kill -9 $$", nil)).Ending(), Ending{Signal: "killed"})
	failing := errors.New("no more room")
	_, err := commands.Run(ctx, "echo x", &CommandOptions{Stdout: failingWriter{failing}})
	equal(t, err, failing)

	id := must(commands.Background(ctx, "echo begun; read line; echo got $line", &CommandOptions{StdinOpen: true}))
	equal(t, must(commands.Status(ctx, id)).Running, true)
	equal(t, must(commands.WriteStdin(ctx, id, []byte("input\n"), true)), int64(6))
	equal(t, *must(commands.Wait(ctx, id)).ExitCode, int32(0))
	equal(t, must(commands.Logs(ctx, id, 0)).Text, "begun\ngot input\n")
	// Where a reader stopped, another goes on.
	part := must(commands.Follow(ctx, id, 0))
	for event, err := range part.Events() {
		ok(t, err)
		if event.Type == Stdout {
			break
		}
	}
	equal(t, must(must(commands.Follow(ctx, id, part.LastSeq())).Output()).Stdout, "got input\n")
	ok(t, commands.SetEnv(ctx, map[string]string{"KEPT": "it's"}))
	equal(t, must(commands.Run(ctx, "echo $KEPT", nil)).Stdout, "it's\n")
	equal(t, kindOfError(commands.SetEnv(ctx, map[string]string{"a-b": ""})), InvalidArgument)
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestLiveContextsEndCalls(t *testing.T) {
	ctx, sandbox := liveSandbox(t, nil)
	ending, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	enough := errors.New("enough")
	execution := must(sandbox.Commands.Stream(ending, "echo up; exec sleep 600", nil))
	for event, err := range execution.Events() {
		if err != nil {
			equal(t, err, enough)
			break
		}
		if event.Type == Stdout {
			cancel(enough)
		}
	}
	over, stop := context.WithCancel(ctx)
	stop()
	if _, err := sandbox.Client.Create(over, "host", nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	late, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	if _, err := sandbox.Commands.Run(late, "sleep 600", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	equal(t, kindOfError(sandbox.WaitForState(ctx, wire.SandboxStatePaused, 50*time.Millisecond)), Timeout)
}

func TestLiveFiles(t *testing.T) {
	ctx, sandbox := liveSandbox(t, nil)
	files := sandbox.Files
	ok(t, files.WriteText(ctx, "/tmp/d/text", "grüße", &Permission{Mode: 0o640}))
	equal(t, must(files.ReadText(ctx, "/tmp/d/text")), "grüße")
	equal(t, must(files.Info(ctx, "/tmp/d/text"))["/tmp/d/text"].Mode, os.FileMode(0o640))
	const size = 4 << 20
	ok(t, files.Upload(ctx, "/tmp/d/big", io.LimitReader(zeros{}, size), nil))
	stream := must(files.Download(ctx, "/tmp/d/big"))
	equal(t, []any{stream.Length, must(io.Copy(io.Discard, stream)), stream.Close()}, []any{int64(size), int64(size), nil})
	equal(t, must(files.ReplaceAll(ctx, map[string]Replacement{"/tmp/d/text": {Old: "g", New: "G"}})), map[string]int64{"/tmp/d/text": 1})
	ok(t, files.RenameAll(ctx, []Rename{{"/tmp/d/text", "/tmp/d/moved"}}))
	ok(t, files.CreateDirectories(ctx, []string{"/tmp/d/sub"}, &Permission{Mode: 0o700}))
	equal(t, must(files.Info(ctx, "/tmp/d/sub"))["/tmp/d/sub"].Mode, os.FileMode(0o700))
	failing := errors.New("the source broke")
	err := files.Upload(ctx, "/tmp/d/none", io.MultiReader(strings.NewReader("0123"), failingReader{failing}), nil)
	equal(t, []any{err, must(files.Exists(ctx, "/tmp/d/none"))}, []any{failing, false})

	place := t.TempDir()
	ok(t, os.MkdirAll(filepath.Join(place, "from/sub"), 0o755))
	ok(t, os.WriteFile(filepath.Join(place, "from/sub/file"), []byte("content"), 0o755))
	equal(t, must(files.UploadDirectory(ctx, filepath.Join(place, "from"), "/tmp/there")), wire.ArchiveResponse{Entries: 2, Bytes: 7})
	back := must(files.DownloadDirectory(ctx, "/tmp/there", filepath.Join(place, "to")))
	equal(t, back.Bytes, int64(7))
	equal(t, string(must(os.ReadFile(filepath.Join(place, "to/sub/file")))), "content")
	if _, err := files.UploadDirectory(ctx, filepath.Join(place, "nowhere"), "/tmp/nowhere"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

type zeros struct{}

func (zeros) Read(piece []byte) (int, error) {
	clear(piece)
	return len(piece), nil
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

func TestLivePorts(t *testing.T) {
	ctx, sandbox := liveSandbox(t, nil)
	const echo = `python3 -c "import socket; s=socket.create_server(('127.0.0.1',7000)); print('up',flush=True); c,_=s.accept(); ` +
		`c.sendall(b''.join(iter(lambda: c.recv(4), b''))[::-1]); c.close()"`
	untilUp(t, must(sandbox.Commands.Stream(ctx, echo, nil)), "up\n")
	tunnel := must(sandbox.Tunnel(ctx, 7000))
	must(io.WriteString(tunnel, "abcd"))
	// Half of it is closed, and the other half still speaks.
	ok(t, tunnel.(interface{ CloseWrite() error }).CloseWrite())
	equal(t, string(must(io.ReadAll(tunnel))), "dcba")
	ok(t, tunnel.Close())

	const web = `cd /tmp && echo page > index.html && exec python3 -u -c "import http.server as h; s=h.HTTPServer(('127.0.0.1',7001), ` +
		`h.SimpleHTTPRequestHandler); print('up'); s.serve_forever()"`
	untilUp(t, must(sandbox.Commands.Stream(ctx, web, nil)), "up\n")
	answer := must(sandbox.Do(7001, must(http.NewRequestWithContext(ctx, http.MethodGet, "/index.html", nil))))
	defer answer.Body.Close()
	equal(t, string(must(io.ReadAll(answer.Body))), "page\n")
	_, err := sandbox.PreviewURL(ctx, 80, time.Now().Add(time.Minute))
	if failed := asError(err); failed == nil || failed.Status < 400 || failed.Remedy == "" {
		t.Errorf("this server signs nothing: %v", err)
	}
}

// untilUp reads until a program says that it is up. It goes on.
func untilUp(t *testing.T, execution *Execution, wanted string) {
	t.Helper()
	for {
		event, err := execution.Next()
		ok(t, err)
		if event.Type == Stdout && event.Text == wanted {
			t.Cleanup(func() { execution.Close() })
			return
		}
	}
}

func TestLiveTwoHundredSandboxesAtOnce(t *testing.T) {
	ctx, client := live(t)
	var wait sync.WaitGroup
	failures := make(chan error, 200)
	for at := range 200 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			failures <- func() error {
				options := &CreateOptions{Resources: map[string]string{"memory": "64Mi", "cpu": "0.1"}, ReadyTimeout: liveTime}
				sandbox, err := client.Create(ctx, "host", options)
				if err != nil {
					return err
				}
				defer sandbox.Close(ctx)
				output, err := sandbox.Commands.Run(ctx, fmt.Sprint("echo ", at), nil)
				if err == nil && output.Stdout != fmt.Sprintln(at) {
					err = fmt.Errorf("%d printed %q", at, output.Stdout)
				}
				return err
			}()
		}()
	}
	wait.Wait()
	close(failures)
	for err := range failures {
		ok(t, err)
	}
}
