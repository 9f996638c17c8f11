package osb

import (
	"context"
	"io"
	"net/http"

	"github.com/osb-dev/osb/sdks/go/wire"
)

// PullOptions says how an image is brought to a server; nil is the usual way.
type PullOptions struct {
	// Auth are the credentials of a private image.
	Auth *wire.ImageAuth
	// Platform is the operating system and processor; nil is the server's own.
	Platform *wire.PlatformSpec
}

// Images are those that a server keeps. An extension of the protocol, for holders of an API key.
type Images struct{ server *target }

// List is all of them, and what they take.
func (i *Images) List(ctx context.Context) (wire.ListImagesResponse, error) {
	return sendJSON[wire.ListImagesResponse](ctx, i.server, http.MethodGet, "/images", call{})
}

// Pull brings an image to the server. The last event is "done" or "error"; a stream that ends without either
// was cut off. Closing it gives the download up; what has come stays for the next.
func (i *Images) Pull(ctx context.Context, image string, options *PullOptions) (*Stream[wire.PullEvent], error) {
	request := wire.PullImageRequest{Image: wire.ImageSpec{URI: image}}
	if options != nil {
		request.Image.Auth, request.Platform = options.Auth, options.Platform
	}
	// A registry may think about its first answer for long.
	got, err := i.server.send(ctx, http.MethodPost, "/images/pull", call{json: request, timeout: forever})
	if err != nil {
		return nil, err
	}
	return newStream[wire.PullEvent](got, "the progress of a download"), nil
}

// Import brings images to the server from an archive: an OCI layout, docker save, or a root filesystem, which
// needs a name.
func (i *Images) Import(ctx context.Context, archive io.Reader, name string) (wire.ImportImagesResponse, error) {
	content := newSource(tarType, archive)
	sent := content.call()
	sent.query, sent.timeout = queryOf("name", name), forever
	answered, err := sendJSON[wire.ImportImagesResponse](ctx, i.server, http.MethodPost, "/images/import", sent)
	return answered, content.explain(err)
}

// Export is an image as an OCI archive.
func (i *Images) Export(ctx context.Context, reference string) (*ByteStream, error) {
	asked := call{query: queryOf("reference", reference), timeout: forever}
	got, err := i.server.send(ctx, http.MethodGet, "/images/export", asked)
	if err != nil {
		return nil, err
	}
	return newByteStream(got), nil
}

// Tag gives an image that is there, by name or id, another name, which means exactly this image from now on; it
// answers the image with all its names.
func (i *Images) Tag(ctx context.Context, reference, name string) (wire.ImageInfo, error) {
	asked := call{query: queryOf("reference", reference, "name", name)}
	return sendJSON[wire.ImageInfo](ctx, i.server, http.MethodPost, "/images/tag", asked)
}

// Remove takes a name from an image; what nobody uses goes with [Images.Prune].
func (i *Images) Remove(ctx context.Context, reference string) error {
	return doneAtID(ctx, i.server, http.MethodDelete, "/images/%s", reference, call{})
}

// Prune removes images without a name that nobody uses, and layers without an image.
func (i *Images) Prune(ctx context.Context) (wire.PruneImagesResponse, error) {
	return sendJSON[wire.PruneImagesResponse](ctx, i.server, http.MethodPost, "/images/prune", call{timeout: forever})
}

// Volumes are the named ones that a server keeps. An extension of the protocol, for holders of an API key.
type Volumes struct{ server *target }

// List is all of them, and who has them mounted.
func (v *Volumes) List(ctx context.Context) (wire.ListVolumesResponse, error) {
	return sendJSON[wire.ListVolumesResponse](ctx, v.server, http.MethodGet, "/volumes", call{})
}

// Create makes a volume. A sandbox that names one that is not there makes it as well.
func (v *Volumes) Create(ctx context.Context, name string) (wire.VolumeSummary, error) {
	sent := call{json: wire.CreateVolumeRequest{Name: name}}
	return sendJSON[wire.VolumeSummary](ctx, v.server, http.MethodPost, "/volumes", sent)
}

// Remove removes a volume with all it holds; one that a sandbox has mounted only when forced.
func (v *Volumes) Remove(ctx context.Context, name string, force bool) error {
	query := ""
	if force {
		query = queryOf("force", "true")
	}
	return doneAtID(ctx, v.server, http.MethodDelete, "/volumes/%s", name, call{query: query})
}
