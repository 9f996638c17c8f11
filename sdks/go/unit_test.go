package osb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/osb-dev/osb/sdks/go/wire"
)

// What needs no server, or one by hand that answers as no real one can be made to.

func kindOfError(err error) Kind {
	if found := asError(err); found != nil {
		return found.Kind
	}
	return ""
}

func equal(t *testing.T, got, wanted any, about ...any) {
	t.Helper()
	if !reflect.DeepEqual(got, wanted) {
		t.Errorf("%v\ngot:    %#v\nwanted: %#v", fmt.Sprint(about...), got, wanted)
	}
}

// inPieces gives at most so many bytes at once.
type inPieces struct {
	source io.Reader
	size   int
}

func (p inPieces) Read(piece []byte) (int, error) {
	return p.source.Read(piece[:min(len(piece), p.size)])
}

func TestEventStreamsInEveryFramingAndPiece(t *testing.T) {
	events := []string{`{"type":"stdout","text":"a\n\u2028ü"}`, `{"type":"stdout","text":"}\n\n{\""}`, `{"n":3}`}
	named := ":\n\n"
	for at, event := range events {
		named += fmt.Sprintf("id: %d\nevent: x\ndata: %s\r\n\r\n", at, event)
	}
	framings := map[string]string{
		"bare":  strings.Join(events, "\n\n") + "\n\n",
		"data":  "data: " + strings.Join(events, "\n\ndata: ") + "\n\n",
		"named": named,
		"lines": strings.Join(events, "\n") + "\n",
		"torn":  "data: " + strings.Join(events, "\n\ndata: "),
	}
	for name, text := range framings {
		for size := 1; size <= len(text); size++ {
			for _, source := range []io.Reader{strings.NewReader(text), iotest.DataErrReader(strings.NewReader(text))} {
				frames := newFrameReader(inPieces{source, size}, "test")
				var seen []string
				event, err := frames.next()
				for ; err == nil; event, err = frames.next() {
					seen = append(seen, string(event))
				}
				equal(t, err, io.EOF, name, size)
				equal(t, seen, events, name, " in pieces of ", size)
			}
		}
	}
}

func TestWhatIsNoEventStreamIsRefused(t *testing.T) {
	for _, text := range []string{"<html>\n", "hello world: x\n", strings.Repeat("x", eventBytesMax+1)} {
		if _, err := newFrameReader(strings.NewReader(text), "test").next(); !errors.Is(err, Unreadable) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	broken := errors.New("broken")
	source := io.MultiReader(strings.NewReader("{\"a\":1}\n\n{\"b\""), iotest.ErrReader(broken))
	frames := newFrameReader(source, "test")
	if event, err := frames.next(); err != nil || string(event) != `{"a":1}` {
		t.Errorf("%s %v", event, err)
	}
	if _, err := frames.next(); err != broken {
		t.Errorf("half an event before an error is none: %v", err)
	}
}

// Whatever the quick reader takes, it takes as encoding/json does.
func FuzzParseEvent(f *testing.F) {
	for _, seed := range []string{
		`{"type":"stdout","text":"1\n","timestamp":1789000000000,"seq":2}`, `{"type":"stdout","text":"\u00e9\\\"\/\b\f\r\t"}`,
		`{"type":"stderr","text":"grüße"}`, "{\"type\":\"stdout\",\"text\":\"\xff\"}", `{"code":"A","message":"b"}`,
		`{"type":"stdout","text":"a\n","results":{"text/plain":"x"},"execution_count":3}`, `{"type":"error","error":{"ename":"E"}}`,
		`{"type":"x","seq":-1}`, `{"type":"x","seq":1.5}`, `{"type":"x","seq":99999999999999999999}`, `{"type":"x","text":"a`, `{}`, `{"type":"x"}}`,
		`{"type":"x","text":"a` + "\n" + `b"}`, `{"type":"x","seq":01}`, `{"Type":"x"}`, `{"type":"a","type":"b"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		kept := bytes.Clone(text)
		scan := eventScanner{text: text}
		quick, ok := scan.event()
		if !bytes.Equal(text, kept) {
			t.Fatalf("%q was changed to %q", kept, text)
		}
		var slow streamEvent
		err := json.Unmarshal(text, &slow)
		if ok && (err != nil || !reflect.DeepEqual(quick, slow)) {
			t.Fatalf("%q: %#v, and encoding/json %#v %v", text, quick, slow, err)
		}
	})
}

func TestOutputIsReadQuickly(t *testing.T) {
	scan := eventScanner{text: []byte(`{"type":"stdout","text":"1\n","timestamp":1789000000000,"seq":2}`)}
	if event, ok := scan.event(); !ok || event.Text != "1\n" || event.Seq != 2 {
		t.Errorf("the form that commands print in is left to encoding/json: %#v", event)
	}
}

func TestSettingsComeFromWhereTheyAreSaidTo(t *testing.T) {
	const file = "# osb\n[connection]\ndomain = \"a:1\" # here\nrequest_timeout = 7.5\nuse_server_proxy = true\n[output]\nx = [1, \"2\"]\n"
	config, err := parseConfig("f", file)
	equal(t, err, nil)
	equal(t, config, Config{Domain: "a:1", RequestTimeout: 7500 * time.Millisecond, UseServerProxy: true})
	for _, wrong := range []string{
		"connection = 3", "[connection]\ndomain = 3", "[connection\n", "[connection]\ndomain = a", "[connection]\nprotocol = 'ftp'",
		"[[connection]]", "[connection]\ndomain = \"\"\"a\"\"\"", "a = 1\na = 2", "[connection]\nrequest_timeout = 'x'",
	} {
		if _, err := parseConfig("f", wrong); !errors.Is(err, BadConfig) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	table, err := parseTOML("a.b = {c = '\\x', d = []}\n\"d e\" = \"\\u00e9\\n\"\nf = 1_000\ng = 0x10\n")
	equal(t, err, nil)
	wanted := map[string]any{"a": map[string]any{"b": map[string]any{"c": `\x`, "d": []any{}}}, "d e": "é\n", "f": 1000.0, "g": 16.0}
	equal(t, table, wanted)
	read := func(pairs map[string]string) (Config, error) {
		var config Config
		err := config.readEnvironment(func(name string) string { return pairs[name] })
		return config, err
	}
	config, err = read(map[string]string{EnvAPIKey: " ", EnvRequestTimeout: "soon", EnvUseServerProxy: "perhaps"})
	equal(t, []any{config, err}, []any{Config{}, nil})
	config, err = read(map[string]string{EnvProtocol: "HTTPS", EnvUseServerProxy: "on"})
	equal(t, []any{config, err}, []any{Config{Protocol: "https", UseServerProxy: true}, nil})
	if _, err = read(map[string]string{EnvProtocol: "ftp"}); !errors.Is(err, BadConfig) {
		t.Error(err)
	}
	if _, err := ReadConfig("/no/such/file"); !errors.Is(err, BadConfig) {
		t.Error(err)
	}
}

func TestSettingsAreCheckedAndTheirKeyIsNotPrinted(t *testing.T) {
	config := Config{Domain: "https://example.com/", APIKey: "very-secret", Headers: map[string]string{"X-Token": "very-secret"}}
	base, err := config.BaseURL()
	equal(t, []any{base, err}, []any{"https://example.com/v1", nil})
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(format, config); strings.Contains(text, "secret") {
			t.Errorf("%s prints %s", format, text)
		}
	}
	for _, wrong := range []Config{
		{Domain: "a b"}, {Domain: "http://"}, {RequestTimeout: -1}, {Protocol: "ftp"}, {APIKey: "a\nb"}, {UserAgent: "a\r"},
		{Headers: map[string]string{"A:": "b"}}, {Headers: map[string]string{"A": "b\nC: d"}},
	} {
		if _, err := NewClient(wrong); !errors.Is(err, BadConfig) {
			t.Errorf("%#v: %v", wrong, err)
		}
	}
}

func TestResultsHaveTheirForms(t *testing.T) {
	raw := func(text string) *RichResult {
		var byType map[string]json.RawMessage
		equal(t, json.Unmarshal([]byte(text), &byType), nil)
		return newRichResult(byType, nil)
	}
	svg := raw(`{"image/svg+xml": "<svg/>", "text/plain": "f"}`)
	equal(t, svg.Kind(), ResultFigure)
	equal(t, svg.Figure(), &Figure{"image/svg+xml", []byte("<svg/>")})
	equal(t, raw(`{"image/png": "iVBO\n"}`).Figure().Bytes, []byte("\x89PN"))
	equal(t, string(raw(`{"application/json": {"a": 1}}`).JSON()), `{"a": 1}`)
	equal(t, raw(`{"text/latex": "x"}`).Kind(), ResultOther)
	equal(t, raw(`{"text/markdown": "*x*"}`).Markdown(), "*x*")
	table := raw(`{"text/html": "<table><tr><th>a</th></tr><tr><td>1 &lt; <b>2</b></td></tr></table>"}`)
	equal(t, table.Kind(), ResultTable)
	equal(t, table.Table(), [][]string{{"a"}, {"1 < 2"}})
}

// byHand is a client at a server that answers by hand: with the request, and how many came before.
func byHand(t *testing.T, config Config, answer func(http.ResponseWriter, *http.Request, int)) (*Client, func() int) {
	var count atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		answer(writer, request, int(count.Add(1))-1)
	}))
	t.Cleanup(server.Close)
	config.Domain = server.URL
	client, err := NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	return client, func() int { return int(count.Load()) }
}

func TestEveryFormOfAnErrorHasAMessage(t *testing.T) {
	forms := []struct {
		status        int
		body, message string
	}{
		{400, `{"code":"A","message":"no room","detail":[{"loc":["body"],"msg":"x"}]}`, "no room (GET /health: 400, A, request r0)"},
		{422, `{"detail":[{"loc":["body","timeout"],"msg":"too short"},{"loc":["body",1],"msg":"no"}]}`,
			"body.timeout: too short; body.1: no (GET /health: 422, request r1)"},
		{404, `{"detail":"Not Found"}`, "Not Found (GET /health: 404, request r2)"},
		{500, "Broken\nx", "Broken (GET /health: 500, request r3)"},
		{500, "<html>busy</html>", "the server answered 500 Internal Server Error (GET /health: 500, request r4)"},
	}
	client, _ := byHand(t, Config{}, func(writer http.ResponseWriter, _ *http.Request, before int) {
		writer.Header().Set("X-Request-ID", fmt.Sprintf("r%d", before))
		writer.WriteHeader(forms[before].status)
		io.WriteString(writer, forms[before].body)
	})
	for at, form := range forms {
		_, err := client.Health(context.Background())
		var failed *Error
		if !errors.As(err, &failed) {
			t.Fatal(err)
		}
		equal(t, []any{failed.Kind, failed.Status, failed.Message, failed.RequestID}, []any{API, form.status, form.message, fmt.Sprintf("r%d", at)})
		if failed.Remedy == "" {
			t.Error("there is nothing to do next")
		}
	}
}

func TestOnlyWhatIsSafeIsSentAgain(t *testing.T) {
	ctx := context.Background()
	retry := &RetryPolicy{Attempts: 3, FirstDelay: time.Millisecond, LongestDelay: 5 * time.Millisecond}
	client, count := byHand(t, Config{Retry: retry}, func(writer http.ResponseWriter, request *http.Request, before int) {
		if request.Method == http.MethodGet && before >= 2 {
			io.WriteString(writer, `{"status":"healthy"}`)
			return
		}
		writer.Header().Set("Retry-After", "0")
		writer.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(writer, `{"code":"BUSY","message":"not now"}`)
	})
	_, err := client.Health(ctx)
	equal(t, []any{err, count()}, []any{nil, 3}, "reading is repeated")
	_, err = client.Create(ctx, "host", nil)
	equal(t, []any{asError(err).Code, count()}, []any{"BUSY", 4}, "making is not")
	_, err = client.Create(ctx, "host", &CreateOptions{IdempotencyKey: "k"})
	equal(t, []any{asError(err).Code, count()}, []any{"BUSY", 8}, "except by a key that makes it safe")
	_, err = client.Sandbox("..").Info(ctx)
	equal(t, kindOfError(err), InvalidArgument)

	// Nobody listens any more where somebody did.
	listener, err := net.Listen("tcp", "127.88.77.66:0")
	equal(t, err, nil)
	nowhere, err := NewClient(Config{Domain: listener.Addr().String(), Retry: &RetryPolicy{}})
	equal(t, []any{err, listener.Close()}, []any{nil, nil})
	_, err = nowhere.Health(ctx)
	if failed := asError(err); failed == nil || !failed.Unsent || !failed.Retryable() || failed.Kind != Connection {
		t.Error(err)
	}
}

// closedConn is a connection that turns out to be closed when it is written to once more.
type closedConn struct {
	net.Conn
	isClosed *atomic.Bool
}

func (c closedConn) Write(piece []byte) (int, error) {
	if c.isClosed.Load() {
		return 0, errClosedIdle
	}
	return c.Conn.Write(piece)
}

// A stream can be read once; what was read of it before its connection turned out to be closed is sent all the same.
func TestAStreamGoesByAnotherConnectionWhereNothingLeft(t *testing.T) {
	for _, size := range []int{0, 10, 60 << 10, 1 << 20} {
		var isClosed atomic.Bool
		transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			made, err := dial(ctx, network, address)
			if isClosed.Load() {
				return made, err
			}
			return closedConn{made, &isClosed}, err
		}}
		var got []byte
		client, _ := byHand(t, Config{Transport: transport}, func(writer http.ResponseWriter, request *http.Request, _ int) {
			if request.Method == http.MethodPost {
				got, _ = io.ReadAll(request.Body)
			}
			io.WriteString(writer, `{"status":"healthy","ids":[]}`)
		})
		_, err := client.Health(context.Background())
		equal(t, err, nil)
		isClosed.Store(true)
		sent := bytes.Repeat([]byte("0123456789"), size/10)
		_, err = client.Images.Import(context.Background(), struct{ io.Reader }{bytes.NewReader(sent)}, "name")
		equal(t, []any{err, bytes.Equal(got, sent)}, []any{nil, true}, fmt.Sprintf("%d bytes", size))
	}
}

// A kept connection that was closed meanwhile is noticed before anything is written to it.
func TestAKeptConnectionThatWasClosedIsNotUsed(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	made, err := dial(context.Background(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	other, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := made.Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(other, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	other.Close()
	// The end has come when a read says so, and it is still there to be looked at.
	if _, err := made.Read(make([]byte, 1)); err != io.EOF {
		t.Fatal(err)
	}
	if count, err := made.Write([]byte("b")); count != 0 || err != errClosedIdle {
		t.Errorf("%d bytes were written: %v", count, err)
	}
}

func TestAStreamWithoutNumbersSaysThatItBroke(t *testing.T) {
	ctx := context.Background()
	// As the published daemon sends them: bare objects, lines without their ends, no numbers.
	events := []string{
		`{"type":"init","text":"c1","timestamp":1}`, `{"type":"stdout","text":"l1","timestamp":2}`,
		`{"type":"stdout","text":"l2","timestamp":3}`, `{"type":"execution_complete","execution_time":4,"timestamp":4}`,
	}
	runs := 0
	client, _ := byHand(t, Config{}, func(writer http.ResponseWriter, request *http.Request, _ int) {
		if strings.Contains(request.URL.Path, "/endpoints/") {
			json.NewEncoder(writer).Encode(wire.Endpoint{Endpoint: request.Host})
			return
		}
		sent := events
		if runs++; runs > 1 {
			sent = events[:2]
		}
		io.WriteString(writer, strings.Join(sent, "\n\n")+"\n\n")
	})
	commands := client.Sandbox("s1").Commands
	output, err := commands.Run(ctx, "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	code, ok := output.ExitCode()
	equal(t, []any{output.Stdout, code, ok, *output.Took}, []any{"l1\nl2\n", 0, true, 4 * time.Millisecond})
	execution, err := commands.Stream(ctx, "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	var last Event
	for event, err := range execution.Events() {
		if err != nil {
			equal(t, kindOfError(err), StreamBroken)
			break
		}
		last = event
	}
	equal(t, last, Event{Type: Stdout, Text: "l1\n"})
	_, err = execution.Next()
	equal(t, err, io.EOF, "nothing comes after an error")
}

func TestModesAreWrittenAsDigits(t *testing.T) {
	for mode, written := range map[wire.FileMode]string{755: "-rwxr-xr-x", 4750: "urwxr-x---", 1777: "trwxrwxrwx", 640: "-rw-r-----"} {
		equal(t, modeOf(mode).String(), written)
		equal(t, *writtenMode(modeOf(mode)), mode)
	}
	equal(t, *writtenMode(0o2755), wire.FileMode(2755))
	equal(t, writtenMode(0), (*wire.FileMode)(nil))
}
