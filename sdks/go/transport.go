package osb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/osb-dev/osb/sdks/go/wire"
)

const (
	apiKeyHeader    = "OPEN-SANDBOX-API-KEY"
	requestIDHeader = "X-Request-ID"
)

const (
	// An answer that is read into memory as a whole is at most this long. Listings of large trees have
	// some tens of MiB; what is longer is a fault or an attack.
	answerBytesMax = 256 << 20
	// As much of an error's body is read as any real one has.
	errorBytesMax = 64 << 10
	// Half an error is still an error; the deadline of the request is long over.
	errorTime = 5 * time.Second
)

// forever is a time limit that there is none.
const forever time.Duration = -1

// call is what a request carries.
type call struct {
	// Already encoded.
	query   string
	headers map[string]string
	// Sent as JSON.
	json any
	// Sent as it is, instead.
	body *body
	// The head of the answer, and then its whole body, may each take this long; 0 is the config's.
	timeout time.Duration
	// The caller vouches that sending it again is safe.
	repeatable bool
}

// body is bytes to send. What is not in memory can be sent only once.
type body struct {
	contentType string
	// Makes a reader of the bytes.
	open func() io.Reader
	// How many; -1 where that is not known.
	length   int64
	inMemory bool
	// For a stream: the same bytes once more, while few enough were read.
	again func() (io.ReadCloser, error)
}

func bytesBody(contentType string, content []byte) *body {
	return &body{
		contentType: contentType, length: int64(len(content)), inMemory: true,
		open: func() io.Reader { return bytes.NewReader(content) },
	}
}

// target is a place that requests go to, with the headers they carry.
type target struct {
	config *Config
	// Without a slash at the end.
	base    string
	headers map[string]string
}

// answer is the head of a good answer, whose body is still to be read.
type answer struct {
	*http.Response
	// Where it came from, without the query.
	url string
	ctx context.Context
	// Gives the body up, with the reason.
	cancel context.CancelCauseFunc
}

// sendJSON sends a request and reads the answer as JSON.
func sendJSON[T any](ctx context.Context, t *target, method, path string, c call) (T, error) {
	var value T
	content, err := t.bytes(ctx, method, path, c)
	if err != nil {
		return value, err
	}
	if err := json.Unmarshal(content, &value); err != nil {
		return value, unreadableError(method+" "+path, err)
	}
	return value, nil
}

// text sends a request and reads the answer as text.
func (t *target) text(ctx context.Context, method, path string, c call) (string, error) {
	content, err := t.bytes(ctx, method, path, c)
	return string(content), err
}

// done sends a request and lets the answer's body, if any, pass.
func (t *target) done(ctx context.Context, method, path string, c call) error {
	_, err := t.bytes(ctx, method, path, c)
	return err
}

// bytes sends a request and reads the answer as bytes.
func (t *target) bytes(ctx context.Context, method, path string, c call) ([]byte, error) {
	got, err := t.send(ctx, method, path, c)
	if err != nil {
		return nil, err
	}
	return got.readAll(method+" "+path, answerBytesMax, t.limit(c))
}

func (t *target) limit(c call) time.Duration {
	if c.timeout == 0 {
		return t.config.RequestTimeout
	}
	return c.timeout
}

// send sends a request, again where that is safe, and is the answer that came with a good status. The
// deadline is for the answer's head; the body may take longer. net/http sends again by itself only what
// did not leave on a kept connection, and what changes nothing when such a connection turns out closed.
func (t *target) send(ctx context.Context, method, path string, c call) (*answer, error) {
	if c.json != nil {
		content, err := json.Marshal(c.json)
		if err != nil {
			return nil, argumentError("the request cannot be written as JSON: %v", err)
		}
		c.body = bytesBody("application/json", content)
	}
	policy := t.config.Retry
	delay := policy.FirstDelay
	for attempt := 1; ; attempt++ {
		got, err := t.attempt(ctx, method, path, c)
		if err == nil || attempt > policy.Attempts || !mayRepeat(method, c, err) {
			return got, err
		}
		wait := delay
		if found := asError(err); found != nil && found.RetryAfter > 0 {
			wait = found.RetryAfter
		}
		// There is no event to wait for: the other side is busy or away.
		if err := pause(ctx, min(wait, policy.LongestDelay)); err != nil {
			return nil, err
		}
		// Spread out, so that clients that failed together do not return together.
		spread := float64(policy.FirstDelay) + rand.Float64()*float64(3*delay-policy.FirstDelay)
		delay = min(max(time.Duration(spread), policy.FirstDelay), policy.LongestDelay)
	}
}

func mayRepeat(method string, c call, err error) bool {
	found := asError(err)
	if found == nil || c.body != nil && !c.body.inMemory {
		return false
	}
	isSafe := c.repeatable || method != http.MethodPost && method != http.MethodPatch
	switch found.Kind {
	case Connection:
		return found.Unsent || isSafe
	case API:
		return isSafe && isPassing(found.Status)
	}
	return false
}

// pause waits, or is the context's error when that ends before.
func pause(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *target) attempt(ctx context.Context, method, path string, c call) (*answer, error) {
	what, at := method+" "+path, t.base+path
	limited, cancel := context.WithCancelCause(ctx)
	request, err := t.request(limited, method, at, c)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	stop := t.deadline(what, t.limit(c), cancel)
	response, err := t.config.Transport.RoundTrip(request)
	stop()
	if err != nil {
		err = failure(limited, at, err)
		cancel(nil)
		return nil, err
	}
	got := &answer{Response: response, url: at, ctx: limited, cancel: cancel}
	// A redirect is an error as well: credentials are in headers of our own, which it must not carry elsewhere.
	if response.StatusCode/100 != 2 {
		return nil, got.refusal(what)
	}
	return got, nil
}

// deadline gives a request up after this time, unless what it returns is called before.
func (t *target) deadline(what string, limit time.Duration, cancel context.CancelCauseFunc) func() {
	if limit == forever {
		return func() {}
	}
	timer := time.AfterFunc(limit, func() { cancel(timeoutError(what, limit)) })
	return func() { timer.Stop() }
}

func (t *target) request(ctx context.Context, method, at string, c call) (*http.Request, error) {
	if c.query != "" {
		at += "?" + c.query
	}
	request, err := http.NewRequestWithContext(ctx, method, at, nil)
	if err != nil {
		return nil, argumentError("%s is not a place to ask: %v", at, err)
	}
	t.setHeaders(request.Header)
	for name, value := range c.headers {
		request.Header.Set(name, value)
	}
	if c.body == nil {
		return request, nil
	}
	request.Header.Set("Content-Type", c.body.contentType)
	request.ContentLength = c.body.length
	request.Body = io.NopCloser(c.body.open())
	// Asked for by net/http when nothing of a request left because its kept connection was closed.
	if c.body.inMemory {
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(c.body.open()), nil }
	} else {
		request.GetBody = c.body.again
	}
	if c.body.length == 0 {
		request.Body = http.NoBody
	}
	return request, nil
}

func (t *target) setHeaders(header http.Header) {
	header.Set("User-Agent", t.config.UserAgent)
	for name, value := range t.config.Headers {
		header.Set(name, value)
	}
	for name, value := range t.headers {
		header.Set(name, value)
	}
}

// failure is what an error of sending or reading means. The end of the context, by the caller or by a
// deadline of ours, keeps its reason.
func failure(ctx context.Context, url string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var dial *net.OpError
	return connectionError(url, errors.As(err, &dial) && dial.Op == "dial", err)
}

// Read reads the body; the error of a broken connection is an [Error].
func (a *answer) Read(piece []byte) (int, error) {
	count, err := a.Body.Read(piece)
	if err != nil && err != io.EOF {
		err = failure(a.ctx, a.url, err)
	}
	return count, err
}

// Close gives the rest of the body up. A body that was read to its end leaves its connection to the next
// request.
func (a *answer) Close() error {
	err := a.Body.Close()
	a.cancel(context.Canceled)
	return err
}

// readAll reads the whole body, which may take this long.
func (a *answer) readAll(what string, most int64, limit time.Duration) ([]byte, error) {
	defer a.Close()
	if limit != forever {
		timer := time.AfterFunc(limit, func() { a.cancel(timeoutError(what, limit)) })
		defer timer.Stop()
	}
	var content bytes.Buffer
	if a.ContentLength > 0 && a.ContentLength <= most {
		content.Grow(int(a.ContentLength) + bytes.MinRead)
	}
	count, err := content.ReadFrom(io.LimitReader(a, most+1))
	if err == nil && count > most {
		err = unreadableError(what, fmt.Errorf("it is longer than %d bytes", most))
	}
	return content.Bytes(), err
}

// refusal reads an error in the forms of our servers, of the published ones and of proxies between.
func (a *answer) refusal(what string) *Error {
	// The status alone says enough where the rest does not come.
	content, _ := a.readAll(what, errorBytesMax, errorTime)
	refused := &Error{Kind: API, Status: a.StatusCode, Remedy: remedyOf(a.StatusCode), RequestID: a.Header.Get(requestIDHeader)}
	var fields struct {
		Code      string          `json:"code"`
		Message   string          `json:"message"`
		RequestID string          `json:"request_id"`
		Detail    json.RawMessage `json:"detail"`
	}
	isObject := json.Unmarshal(content, &fields) == nil
	refused.Code = fields.Code
	if refused.RequestID == "" {
		refused.RequestID = fields.RequestID
	}
	message := fields.Message
	var detail string
	var problems []wire.ValidationError
	if json.Unmarshal(fields.Detail, &problems) == nil {
		for _, problem := range problems {
			refused.Details = append(refused.Details, detailOf(problem))
		}
		detail = strings.Join(refused.Details, "; ")
	} else if json.Unmarshal(fields.Detail, &detail) != nil {
		detail = ""
	}
	line, _, _ := strings.Cut(string(content), "\n")
	line = strings.TrimSpace(line)
	switch {
	case message != "":
	case detail != "":
		message = detail
	case !isObject && line != "" && !strings.HasPrefix(line, "<"):
		// A page of HTML says less than the status.
		message = line
	default:
		message = "the server answered " + strings.TrimSpace(strconv.Itoa(a.StatusCode)+" "+http.StatusText(a.StatusCode))
	}
	refused.RetryAfter = retryAfter(a.Header.Get("Retry-After"))
	refused.Message = message + " (" + what + ": " + strconv.Itoa(a.StatusCode)
	if refused.Code != "" {
		refused.Message += ", " + refused.Code
	}
	if refused.RequestID != "" {
		refused.Message += ", request " + refused.RequestID
	}
	refused.Message += ")"
	return refused
}

func retryAfter(text string) time.Duration {
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return secondsOf(seconds)
}

func detailOf(problem wire.ValidationError) string {
	steps := make([]string, len(problem.Loc))
	for at, step := range problem.Loc {
		steps[at] = fmt.Sprint(step)
	}
	return strings.Join(steps, ".") + ": " + problem.Msg
}

// segment is an id as a segment of a path. What would lead to another path is refused.
func segment(id string) (string, error) {
	if id == "" || id == "." || id == ".." {
		return "", argumentError("%q is not an id", id)
	}
	return encode(id), nil
}

// pathOf puts ids as segments into a path that has %s in their places.
func pathOf(format string, ids ...string) (string, error) {
	segments := make([]any, len(ids))
	for at, id := range ids {
		encoded, err := segment(id)
		if err != nil {
			return "", err
		}
		segments[at] = encoded
	}
	return fmt.Sprintf(format, segments...), nil
}

// queryOf is a query of pairs; those without a value are left out.
func queryOf(pairs ...string) string {
	var query strings.Builder
	for at := 0; at+1 < len(pairs); at += 2 {
		if pairs[at+1] != "" {
			addPair(&query, pairs[at], pairs[at+1])
		}
	}
	return query.String()
}

func addPair(query *strings.Builder, name, value string) {
	if query.Len() > 0 {
		query.WriteByte('&')
	}
	query.WriteString(encode(name))
	query.WriteByte('=')
	query.WriteString(encode(value))
}

// encode leaves letters, digits and -_.~ alone, as RFC 3986 does, and encodes all else.
func encode(text string) string {
	return strings.ReplaceAll(url.QueryEscape(text), "+", "%20")
}

// number is an optional number of a query.
func number[N int | int64](value N) string {
	if value == 0 {
		return ""
	}
	return strconv.FormatInt(int64(value), 10)
}
