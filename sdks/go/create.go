package osb

import (
	"context"
	"maps"
	"math"
	"strconv"
	"time"

	"github.com/osb-dev/osb/sdks/go/wire"
)

const (
	// DefaultLifetime is how long a sandbox lives that nothing was said about, as in the other SDKs.
	DefaultLifetime = 10 * time.Minute
	// Forever is the lifetime of a sandbox that lives until it is killed.
	Forever time.Duration = math.MaxInt64
)

// What a sandbox may use and does that nothing was said about, as in the other SDKs: it stays.
var (
	defaultResources  = map[string]string{"cpu": "1", "memory": "2Gi"}
	defaultEntrypoint = []string{"tail", "-f", "/dev/null"}
)

// extensionRenewSeconds renews a sandbox by this many seconds on each access through the server.
const extensionRenewSeconds = "access.renew.extend.seconds"

// CreateOptions says what a sandbox should have; nil is the defaults.
type CreateOptions struct {
	// Client is by which; nil is one with the settings of Config. Only for [Create].
	Client *Client
	// Config says where the server is; nil is [LoadConfig]. Only for [Create].
	Config *Config
	// ImageAuth are the credentials of a private image.
	ImageAuth *wire.ImageAuth
	// Snapshot is the id of the snapshot that it starts from, instead of an image.
	Snapshot string
	// Template is the id of the template that it starts from, instead of an image.
	Template string
	// Name is a label "name", by which it can be listed.
	Name string
	// Lifetime is how long it lives; 0 is [DefaultLifetime].
	Lifetime time.Duration
	// RenewOnAccess lets it live so much longer with each request through the server; the operator must
	// allow it.
	RenewOnAccess time.Duration
	// Env is the environment of everything that runs in it.
	Env map[string]string
	// Metadata are its labels.
	Metadata map[string]string
	// Resources are how much it may use, over the defaults: cpu, memory, disk, pids, gpu.
	Resources map[string]string
	// ResourceRequests are how much it is sure to get.
	ResourceRequests map[string]string
	// Entrypoint is the command that it supervises.
	Entrypoint []string
	// NetworkPolicy is what it may reach.
	NetworkPolicy *wire.NetworkPolicy
	// CredentialProxy says whether credentials are put into its requests on the way out.
	CredentialProxy *bool
	// SecureAccess says whether its endpoints need a token of their own.
	SecureAccess *bool
	// Volumes are mounted into it; see [HostVolume] and [NamedVolume].
	Volumes []wire.Volume
	// Platform is its operating system and processor.
	Platform *wire.PlatformSpec
	// Lifecycle are hooks that run in it.
	Lifecycle *wire.SandboxLifecycle
	// Extensions are further settings by name.
	Extensions map[string]string
	// IdempotencyKey makes the request safe to repeat, also by this package after a broken connection
	// (extension).
	IdempotencyKey string
	// ReadyTimeout is how long it may take to be ready, pulling its image included; 0 is
	// [DefaultReadyTimeout].
	ReadyTimeout time.Duration
	// SkipReady does not wait until it answers.
	SkipReady bool
}

// Create makes a sandbox from an image and waits until it can be used. The image is empty when the options
// name a snapshot or a template.
//
//	sandbox, err := osb.Create(ctx, "python:3.12", nil)
//	if err != nil {
//		return err
//	}
//	defer sandbox.Close(ctx)
func Create(ctx context.Context, image string, options *CreateOptions) (*Sandbox, error) {
	if options == nil {
		options = &CreateOptions{}
	}
	client, err := clientOf(options.Client, options.Config)
	if err != nil {
		return nil, err
	}
	return create(ctx, client, image, options)
}

func create(ctx context.Context, client *Client, image string, options *CreateOptions) (*Sandbox, error) {
	if options == nil {
		options = &CreateOptions{}
	}
	request, err := options.request(image)
	if err != nil {
		return nil, err
	}
	created, err := client.CreateRequest(ctx, request, options.IdempotencyKey, options.ReadyTimeout)
	if err != nil {
		return nil, err
	}
	sandbox := newSandbox(client, created.ID, true)
	if options.SkipReady {
		return sandbox, nil
	}
	if err := sandbox.ready(ctx, options.ReadyTimeout); err != nil {
		// Nobody would know its id; whether this works is not the caller's question.
		_ = sandbox.Close(ctx)
		return nil, err
	}
	return sandbox, nil
}

// request is the options as they go over the wire.
func (o *CreateOptions) request(image string) (wire.CreateSandboxRequest, error) {
	request := wire.CreateSandboxRequest{
		SnapshotID: o.Snapshot, TemplateID: o.Template, ResourceRequests: o.ResourceRequests, NetworkPolicy: o.NetworkPolicy,
		SecureAccess: o.SecureAccess, Volumes: o.Volumes, Platform: o.Platform, Lifecycle: o.Lifecycle,
		Entrypoint: o.Entrypoint,
	}
	sources := 0
	for _, source := range []string{image, o.Snapshot, o.Template} {
		if source != "" {
			sources++
		}
	}
	if sources != 1 {
		return request, argumentError("a sandbox starts from an image, a snapshot or a template; name one")
	}
	if image != "" {
		request.Image = &wire.ImageSpec{URI: image, Auth: o.ImageAuth}
	}
	resources := map[string]string{}
	// A template says by itself what its sandboxes may use and do.
	if o.Template == "" {
		maps.Copy(resources, defaultResources)
		if o.Entrypoint == nil {
			request.Entrypoint = defaultEntrypoint
		}
	}
	maps.Copy(resources, o.Resources)
	request.ResourceLimits = resources
	lifetime := o.Lifetime
	if lifetime == 0 {
		lifetime = DefaultLifetime
	}
	if lifetime != Forever {
		seconds := int64(lifetime / time.Second)
		if seconds <= 0 {
			return request, argumentError("%s is not a lifetime of a second or more", lifetime)
		}
		request.Timeout = &seconds
	}
	if o.Env != nil {
		request.Env = make(map[string]*string, len(o.Env))
		for name, value := range o.Env {
			request.Env[name] = &value
		}
	}
	request.Metadata = maps.Clone(o.Metadata)
	if o.Name != "" {
		request.Metadata = with(request.Metadata, "name", o.Name)
	}
	if o.CredentialProxy != nil {
		request.CredentialProxy = &wire.CredentialProxyConfig{Enabled: o.CredentialProxy}
	}
	request.Extensions = maps.Clone(o.Extensions)
	if o.RenewOnAccess > 0 {
		seconds := strconv.FormatInt(max(1, int64(o.RenewOnAccess/time.Second)), 10)
		request.Extensions = with(request.Extensions, extensionRenewSeconds, seconds)
	}
	return request, nil
}

// with sets a name that is not there yet.
func with(values map[string]string, name, value string) map[string]string {
	if values == nil {
		values = map[string]string{}
	}
	if _, ok := values[name]; !ok {
		values[name] = value
	}
	return values
}

// HostVolume is a directory of the host. The operator decides which are allowed.
func HostVolume(name, hostPath, mountPath string, readOnly bool) wire.Volume {
	return wire.Volume{Name: name, Host: &wire.HostVolume{Path: hostPath}, MountPath: mountPath, ReadOnly: &readOnly}
}

// NamedVolume is a volume that outlives the sandbox; it is made when it does not exist.
func NamedVolume(name, volume, mountPath string, readOnly bool) wire.Volume {
	create, remove := true, false
	claim := &wire.NamedVolume{ClaimName: volume, CreateIfNotExists: &create, DeleteOnSandboxTermination: &remove}
	return wire.Volume{Name: name, PVC: claim, MountPath: mountPath, ReadOnly: &readOnly}
}
