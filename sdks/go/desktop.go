package osb

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// Where the helper of the images browser and desktop listens.
	helperPort = 6080
	// How long the X server and what is drawn on it may take to be there.
	desktopReadyTimeout = 60 * time.Second
	// For so long the screen may not change to be still.
	defaultQuiet = 300 * time.Millisecond
	// How long to wait for that.
	defaultStillTimeout = 10 * time.Second
)

// Point is a place in a picture of a desktop.
type Point struct {
	X int `json:"x"`
	Y int `json:"y"`
}

// Region is a part of the screen, in its coordinates.
type Region struct{ X, Y, Width, Height int }

// DesktopAction is something to do, made by [Move], [Click], [Press], [Release], [Drag], [Scroll], [TypeText],
// [PressKeys] or [Wait]. Coordinates are those of the last picture, whatever its size was.
type DesktopAction map[string]any

// MouseOptions say how a button is used; nil is the left one.
type MouseOptions struct {
	// Button is "left", "middle", "right", "back" or "forward".
	Button string
	// Count is how often; 0 is once. Only for [Click].
	Count int
	// Hold are keys that are held meanwhile, such as "ctrl". Not for [Press] and [Release].
	Hold []string
}

// Move moves the pointer.
func Move(to Point) DesktopAction { return DesktopAction{"type": "move", "x": to.X, "y": to.Y} }

// Click clicks there, or where the pointer is if that is nil.
func Click(at *Point, options *MouseOptions) DesktopAction { return mouse("click", at, options) }

// Press presses a button of the mouse there, or where the pointer is.
func Press(at *Point, options *MouseOptions) DesktopAction { return mouse("press", at, options) }

// Release lets go of a button of the mouse there, or where the pointer is.
func Release(at *Point, options *MouseOptions) DesktopAction { return mouse("release", at, options) }

// Drag moves along all points, the button pressed at the first and released at the last.
func Drag(path []Point, options *MouseOptions) DesktopAction {
	action := mouse("drag", nil, options)
	action["path"] = path
	return action
}

// Scroll turns the wheel there, or where the pointer is: notches down, and to the right.
func Scroll(at *Point, down, right int) DesktopAction {
	action := mouse("scroll", at, nil)
	action["dy"], action["dx"] = down, right
	return action
}

// TypeText types text, in any script.
func TypeText(text string) DesktopAction { return DesktopAction{"type": "type", "text": text} }

// PressKeys presses keys together, such as "ctrl+shift+t".
func PressKeys(combination string) DesktopAction {
	return DesktopAction{"type": "key", "keys": combination}
}

// Wait waits for a while.
func Wait(time time.Duration) DesktopAction {
	return DesktopAction{"type": "wait", "ms": time.Milliseconds()}
}

func mouse(kind string, at *Point, options *MouseOptions) DesktopAction {
	action := DesktopAction{"type": kind}
	if at != nil {
		action["x"], action["y"] = at.X, at.Y
	}
	if options == nil {
		return action
	}
	if options.Button != "" {
		action["button"] = options.Button
	}
	if options.Count > 0 {
		action["count"] = options.Count
	}
	if len(options.Hold) > 0 {
		action["hold"] = options.Hold
	}
	return action
}

// PictureOptions say how a picture of a desktop is taken; nil is the whole screen as PNG.
type PictureOptions struct {
	// Region is the part of the screen; nil is all of it.
	Region *Region
	// MaxEdge makes it smaller, so that no edge is longer.
	MaxEdge int
	// Format is "png" or "jpeg".
	Format string
	// Quality of a JPEG is from 1 to 100.
	Quality int
	// Cursor says whether the pointer is in it.
	Cursor bool
}

// DesktopInfo is what the helper says of a desktop.
type DesktopInfo struct {
	Width    int            `json:"width"`
	Height   int            `json:"height"`
	Cursor   Point          `json:"cursor"`
	Window   *DesktopWindow `json:"window"`
	LiveView struct {
		Page      string `json:"page"`
		ViewOnly  string `json:"view_only"`
		WebSocket string `json:"websocket"`
	} `json:"live_view"`
	// Browser is nil where the image has none.
	Browser *struct {
		IsRunning bool   `json:"is_running"`
		CDP       string `json:"cdp"`
	} `json:"browser"`
}

// DesktopWindow is a window of a desktop.
type DesktopWindow struct {
	ID        uint32 `json:"id"`
	Title     string `json:"title"`
	Class     string `json:"class"`
	PID       int    `json:"pid"`
	X         int    `json:"x"`
	Y         int    `json:"y"`
	Width     int    `json:"width"`
	Height    int    `json:"height"`
	IsFocused bool   `json:"is_focused"`
}

// Desktop is the screen, mouse and keyboard of a sandbox of a graphical image, by the helper inside it. It may be
// used by any number of goroutines.
type Desktop struct {
	// Sandbox is whose desktop it is.
	Sandbox *Sandbox
	port    int
	mutex   sync.Mutex
	helper  *target
}

// NewDesktop is the desktop of a sandbox; nothing is asked for yet. See [Desktop.Ready].
func NewDesktop(sandbox *Sandbox) *Desktop { return &Desktop{Sandbox: sandbox, port: helperPort} }

// Ready waits until the screen is there and does not change for a moment; a timeout of 0 is a minute.
func (d *Desktop) Ready(ctx context.Context, timeout time.Duration) error {
	if timeout == 0 {
		timeout = desktopReadyTimeout
	}
	deadline := time.Now().Add(timeout)
	for {
		_, err := d.WaitUntilStill(ctx, 0, 0)
		if err == nil || asError(err) == nil {
			return err
		}
		left := time.Until(deadline)
		if left <= 0 {
			return notReadyError(d.Sandbox.ID, timeout, err)
		}
		// A port that begins to listen tells nobody.
		if err := pause(ctx, min(readyInterval, left)); err != nil {
			return err
		}
	}
}

// Info is the size of the screen, where the pointer is, the focused window, the browser.
func (d *Desktop) Info(ctx context.Context) (DesktopInfo, error) {
	return askHelper[DesktopInfo](ctx, d, http.MethodGet, "/desktop", call{})
}

// Screenshot is a picture of the screen, or of a region of it.
func (d *Desktop) Screenshot(ctx context.Context, options *PictureOptions) ([]byte, error) {
	helper, err := d.target(ctx)
	if err != nil {
		return nil, err
	}
	var query strings.Builder
	for name, value := range options.wire() {
		addPair(&query, name, fmt.Sprint(value))
	}
	picture, err := helper.bytes(ctx, http.MethodGet, "/desktop/screenshot", call{query: query.String()})
	return picture, d.told(err)
}

// Act does actions one after the other, in one request.
func (d *Desktop) Act(ctx context.Context, actions ...DesktopAction) error {
	_, err := d.act(ctx, map[string]any{"actions": actions})
	return err
}

// ActOnScreen is [Desktop.Act] with coordinates of the screen, and not of the last picture.
func (d *Desktop) ActOnScreen(ctx context.Context, actions ...DesktopAction) error {
	_, err := d.act(ctx, map[string]any{"actions": actions, "picture": 0})
	return err
}

// ActAndSee does actions, waits until the screen is still, and answers with a picture of it, in one request.
func (d *Desktop) ActAndSee(ctx context.Context, options *PictureOptions, actions ...DesktopAction) ([]byte, error) {
	then := options.wire()
	then["still"] = map[string]any{"quiet_ms": defaultQuiet.Milliseconds()}
	return d.act(ctx, map[string]any{"actions": actions, "then": then})
}

func (d *Desktop) act(ctx context.Context, order map[string]any) ([]byte, error) {
	done, err := askHelper[struct {
		Picture struct {
			Data []byte `json:"data"`
		} `json:"picture"`
	}](ctx, d, http.MethodPost, "/desktop/actions", call{json: order})
	return done.Picture.Data, err
}

// WaitUntilStill waits until nothing changes for so long; it says no where it still changed at the end of the
// time. Zeros are the usual 0.3 and 10 seconds.
func (d *Desktop) WaitUntilStill(ctx context.Context, quiet, timeout time.Duration) (bool, error) {
	if quiet == 0 {
		quiet = defaultQuiet
	}
	if timeout == 0 {
		timeout = defaultStillTimeout
	}
	query := queryOf("quiet_ms", number(quiet.Milliseconds()), "timeout_ms", number(timeout.Milliseconds()))
	asked := call{query: query, timeout: timeout + d.Sandbox.Client.config.RequestTimeout}
	told, err := askHelper[struct {
		IsStill bool `json:"is_still"`
	}](ctx, d, http.MethodGet, "/desktop/still", asked)
	return told.IsStill, err
}

type clipboardText struct {
	Text string `json:"text"`
}

// Clipboard is the text of the clipboard.
func (d *Desktop) Clipboard(ctx context.Context) (string, error) {
	told, err := askHelper[clipboardText](ctx, d, http.MethodGet, "/desktop/clipboard", call{})
	return told.Text, err
}

// SetClipboard puts text into the clipboard.
func (d *Desktop) SetClipboard(ctx context.Context, text string) error {
	return d.done(ctx, "/desktop/clipboard", clipboardText{text})
}

// Windows are the windows.
func (d *Desktop) Windows(ctx context.Context) ([]DesktopWindow, error) {
	told, err := askHelper[struct {
		Windows []DesktopWindow `json:"windows"`
	}](ctx, d, http.MethodGet, "/desktop/windows", call{})
	return told.Windows, err
}

// Resize gives the screen another size.
func (d *Desktop) Resize(ctx context.Context, width, height int) error {
	return d.done(ctx, "/desktop/size", map[string]int{"width": width, "height": height})
}

// LiveView is a link by which a person sees the desktop in a browser and, unless viewOnly, uses it. It has the
// sandbox's token in it: give it to nobody who may not use the sandbox.
func (d *Desktop) LiveView(ctx context.Context, viewOnly bool) (string, error) {
	info, err := d.Info(ctx)
	if err != nil {
		return "", err
	}
	helper, err := d.target(ctx)
	if err != nil {
		return "", err
	}
	link := helper.base + "/" + info.LiveView.Page
	if viewOnly {
		link = helper.base + "/" + info.LiveView.ViewOnly
	}
	for name, token := range helper.headers {
		if strings.EqualFold(name, apiKeyHeader) {
			continue
		}
		separator := "?"
		if strings.Contains(link, "?") {
			separator = "&"
		}
		return link + separator + queryOf("opensandbox_token", token), nil
	}
	return link, nil
}

func (d *Desktop) target(ctx context.Context) (*target, error) {
	d.mutex.Lock()
	helper := d.helper
	d.mutex.Unlock()
	if helper != nil {
		return helper, nil
	}
	helper, err := d.Sandbox.target(ctx, d.port)
	if err == nil {
		d.mutex.Lock()
		d.helper = helper
		d.mutex.Unlock()
	}
	return helper, err
}

func (d *Desktop) done(ctx context.Context, path string, order any) error {
	helper, err := d.target(ctx)
	if err != nil {
		return err
	}
	return d.told(helper.done(ctx, http.MethodPut, path, call{json: order}))
}

func askHelper[T any](ctx context.Context, d *Desktop, method, path string, c call) (T, error) {
	helper, err := d.target(ctx)
	if err != nil {
		var nothing T
		return nothing, err
	}
	told, err := sendJSON[T](ctx, helper, method, path, c)
	return told, d.told(err)
}

// told is an error as a caller can use it: where nothing listens, it is because the image has no desktop, or not
// yet.
func (d *Desktop) told(err error) error {
	found := asError(err)
	if found == nil {
		return err
	}
	switch found.Status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		why := "nothing answers on port " + strconv.Itoa(d.port) + "; the images browser and desktop have one"
		return failedError("sandbox "+d.Sandbox.ID, "without a desktop", why).behind(err)
	}
	return err
}

func (o *PictureOptions) wire() map[string]any {
	wanted := map[string]any{}
	if o == nil {
		return wanted
	}
	if o.Region != nil {
		wanted["region"] = fmt.Sprintf("%d,%d,%d,%d", o.Region.X, o.Region.Y, o.Region.Width, o.Region.Height)
	}
	if o.MaxEdge > 0 {
		wanted["max_edge"] = o.MaxEdge
	}
	if o.Format != "" {
		wanted["format"] = o.Format
	}
	if o.Quality > 0 {
		wanted["quality"] = o.Quality
	}
	if o.Cursor {
		wanted["cursor"] = true
	}
	return wanted
}
