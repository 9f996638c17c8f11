package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	osb "github.com/osb-dev/osb/sdks/go"
	"github.com/osb-dev/osb/sdks/go/wire"
)

// arguments are what any call may have; what a name means depends on the call where it is raw.
type arguments struct {
	ID             string            `json:"id"`
	Name           string            `json:"name"`
	SandboxID      string            `json:"sandbox_id"`
	States         []string          `json:"states"`
	Metadata       map[string]string `json:"metadata"`
	Page           int               `json:"page"`
	PageSize       int               `json:"page_size"`
	Limit          *int              `json:"limit"`
	Method         string            `json:"method"`
	Path           string            `json:"path"`
	Body           any               `json:"body"`
	Request        json.RawMessage   `json:"request"`
	Policy         json.RawMessage   `json:"policy"`
	Rules          []wire.NetworkRule
	Targets        []string
	After          *int64
	Before         int64
	Tail           *int
	Resource       string
	Actor          string
	Scope          string
	Kind           string
	Query          map[string]any
	Event          wire.MetricsEvent
	Image          string
	Reference      string
	Force          bool
	Platform       *wire.PlatformSpec
	Port           int
	Patch          map[string]*string
	State          wire.SandboxState
	ExpiresInS     float64         `json:"expires_in_s"`
	RenewOnAccessS float64         `json:"renew_on_access_s"`
	IdempotencyKey string          `json:"idempotency_key"`
	LifetimeS      json.RawMessage `json:"lifetime_s"`
	TimeoutMS      float64         `json:"timeout_ms"`

	Domain           string
	APIKey           string `json:"api_key"`
	Protocol         string
	RequestTimeoutMS float64 `json:"request_timeout_ms"`
	UseServerProxy   bool    `json:"use_server_proxy"`
	Headers          map[string]string
	Retry            *struct {
		Attempts       *int
		FirstDelayMS   *float64 `json:"first_delay_ms"`
		LongestDelayMS *float64 `json:"longest_delay_ms"`
	}
	Environment map[string]string
	File        *string

	SnapshotID      string `json:"snapshot_id"`
	TemplateID      string `json:"template_id"`
	Env             map[string]string
	Resources       map[string]string
	Entrypoint      []string
	Volumes         []wire.Volume
	NetworkPolicy   *wire.NetworkPolicy `json:"network_policy"`
	CredentialProxy *bool               `json:"credential_proxy"`
	SecureAccess    *bool               `json:"secure_access"`
	Extensions      map[string]string
	Lifecycle       *wire.SandboxLifecycle
	ReadyTimeoutMS  float64 `json:"ready_timeout_ms"`
	SkipReady       bool    `json:"skip_ready"`
	Resume          bool
	Keep            bool
	Fail            bool

	Command   string
	Argv      []string
	Cwd       string
	UID       *int32
	GID       *int32
	Stdin     string
	StdinOpen bool `json:"stdin_open"`
	Text      string
	Close     bool
	Cursor    int64
	Variables map[string]string
	Pipes     bool
	Since     *int64
	TakeOver  bool   `json:"take_over"`
	GraceS    *int64 `json:"grace_s"`
	Size      *[2]int
	Columns   int
	Rows      int
	Signal    wire.PtySignal
	Code      string
	Language  string
	Context   string

	Paths   []string
	Pattern string
	Depth   *int
	Start   int64
	End     int64
	First   int
	Count   int
	Bytes   int64
	Base64  *[]byte
	Mode    string
	Owner   string
	Group   string
	From    string
	To      string
	Old     string
	New     string
	Files   json.RawMessage
	AsUser  []uint32 `json:"as_user"`

	MaxIdle      int     `json:"max_idle"`
	IdleTimeoutS float64 `json:"idle_timeout_s"`
}

func duration(count float64, unit time.Duration) time.Duration {
	return time.Duration(count * float64(unit))
}

// decode reads an argument whose type depends on the call.
func decode[T any](raw json.RawMessage) T {
	var value T
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &value); err != nil {
			panic(err)
		}
	}
	return value
}

func (a *arguments) config() osb.Config {
	config := osb.Config{
		Domain: a.Domain, APIKey: a.APIKey, Protocol: a.Protocol, UseServerProxy: a.UseServerProxy, Headers: a.Headers,
		RequestTimeout: duration(a.RequestTimeoutMS, time.Millisecond),
	}
	if a.Retry != nil {
		retry := osb.DefaultRetry
		if a.Retry.Attempts != nil {
			retry.Attempts = *a.Retry.Attempts
		}
		if a.Retry.FirstDelayMS != nil {
			retry.FirstDelay = duration(*a.Retry.FirstDelayMS, time.Millisecond)
		}
		if a.Retry.LongestDelayMS != nil {
			retry.LongestDelay = duration(*a.Retry.LongestDelayMS, time.Millisecond)
		}
		config.Retry = &retry
	}
	return config
}

// lifetime is a time, forever where it is null, and the default where nothing is said.
func (a *arguments) lifetime() time.Duration {
	if len(a.LifetimeS) == 0 {
		return 0
	}
	if string(a.LifetimeS) == "null" {
		return osb.Forever
	}
	return duration(decode[float64](a.LifetimeS), time.Second)
}

func (a *arguments) createOptions() *osb.CreateOptions {
	return &osb.CreateOptions{
		Snapshot: a.SnapshotID, Template: a.TemplateID, Lifetime: a.lifetime(), Env: a.Env, Metadata: a.Metadata,
		Resources: a.Resources, Entrypoint: a.Entrypoint, Volumes: a.Volumes, NetworkPolicy: a.NetworkPolicy,
		CredentialProxy: a.CredentialProxy, SecureAccess: a.SecureAccess, Extensions: a.Extensions, Platform: a.Platform,
		Name: a.Name, RenewOnAccess: duration(a.RenewOnAccessS, time.Second), IdempotencyKey: a.IdempotencyKey,
		Lifecycle: a.Lifecycle, ReadyTimeout: duration(a.ReadyTimeoutMS, time.Millisecond), SkipReady: a.SkipReady,
	}
}

func (a *arguments) commandOptions() *osb.CommandOptions {
	return &osb.CommandOptions{
		Argv: a.Argv, Cwd: a.Cwd, Env: a.Env, Timeout: duration(a.TimeoutMS, time.Millisecond), UID: a.UID, GID: a.GID,
		Stdin: a.Stdin, StdinOpen: a.StdinOpen,
	}
}

func (a *arguments) sandboxFilter() *osb.SandboxFilter {
	filter := &osb.SandboxFilter{Metadata: a.Metadata, Page: a.Page, PageSize: a.PageSize}
	for _, state := range a.States {
		filter.States = append(filter.States, wire.SandboxState(state))
	}
	return filter
}

func (a *arguments) snapshotFilter() *osb.SnapshotFilter {
	filter := &osb.SnapshotFilter{SandboxID: a.SandboxID, Name: a.Name, Page: a.Page, PageSize: a.PageSize}
	for _, state := range a.States {
		filter.States = append(filter.States, wire.SnapshotState(state))
	}
	return filter
}

func (a *arguments) permission() osb.Permission {
	permission := osb.Permission{Owner: a.Owner, Group: a.Group}
	if a.Mode != "" {
		bits, err := strconv.ParseUint(a.Mode, 8, 16)
		if err != nil {
			panic(err)
		}
		permission.Mode = fs.FileMode(bits)
	}
	return permission
}

func (a *arguments) contents() []byte {
	if a.Base64 != nil {
		return *a.Base64
	}
	return []byte(a.Text)
}

// packed is files as tar, with the directories on the way.
func packed(files map[string]string) io.Reader {
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	write := func(header *tar.Header, content string) {
		if err := writer.WriteHeader(header); err != nil {
			panic(err)
		}
		if _, err := io.WriteString(writer, content); err != nil {
			panic(err)
		}
	}
	seen := map[string]bool{}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		steps := strings.Split(strings.TrimLeft(name, "/"), "/")
		for depth := 1; depth < len(steps); depth++ {
			directory := strings.Join(steps[:depth], "/")
			if !seen[directory] {
				write(&tar.Header{Name: directory + "/", Typeflag: tar.TypeDir, Mode: 0o755}, "")
			}
			seen[directory] = true
		}
		write(&tar.Header{Name: strings.Join(steps, "/"), Mode: 0o644, Size: int64(len(files[name]))}, files[name])
	}
	if err := writer.Close(); err != nil {
		panic(err)
	}
	return &archive
}

// entriesOf reads an archive to its end: how many bytes, and the names in it.
func entriesOf(archive io.ReadCloser, isOfFiles bool) (object, error) {
	defer archive.Close()
	counter := &counter{}
	reader := tar.NewReader(io.TeeReader(archive, counter))
	names := []string{}
	for {
		header, err := reader.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if !isOfFiles || header.Typeflag == tar.TypeReg {
			names = append(names, strings.TrimPrefix(header.Name, "./"))
		}
	}
	if _, err := io.Copy(counter, archive); err != nil {
		return nil, err
	}
	slices.Sort(names)
	return object{"bytes": counter.bytes, "entries": names}, nil
}

type counter struct{ bytes int64 }

func (c *counter) Write(piece []byte) (int, error) {
	c.bytes += int64(len(piece))
	return len(piece), nil
}

func digest(content io.Reader) (object, error) {
	hash := sha256.New()
	count, err := io.Copy(hash, content)
	return object{"bytes": count, "sha256": hex.EncodeToString(hash.Sum(nil))}, err
}

// madeUp is bytes that anyone can make again: each is its place modulo 251.
type madeUp struct{ at int64 }

func (m *madeUp) Read(piece []byte) (int, error) {
	for at := range piece {
		piece[at] = byte(m.at % 251)
		m.at++
	}
	return len(piece), nil
}

func readerOf(content []byte) io.Reader { return bytes.NewReader(content) }
