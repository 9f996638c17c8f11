package osb

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/osb-dev/osb/sdks/go/wire"
)

// WriteFile is a file to write.
type WriteFile struct {
	// Path is where it goes.
	Path string
	// Contents is what it is to contain.
	Contents io.Reader
	Permission
}

// source is what is sent: bytes in memory, or readers that are never whole in memory and are read once.
type source struct {
	contentType string
	parts       []io.Reader
	// What a reader that is not in memory failed with. net/http reads on a goroutine of its own.
	failed atomic.Pointer[error]
	// Whether the request is over: nothing of the caller's is read any more.
	isOver atomic.Bool
}

// newSource is one body of these contents.
func newSource(contentType string, contents io.Reader) *source {
	return &source{contentType: contentType, parts: []io.Reader{contents}}
}

// newForm is a metadata and a file part for each file, as a multipart form (RFC 7578).
func newForm(files []WriteFile) (*source, error) {
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, err
	}
	boundary := "osb-" + hex.EncodeToString(random[:])
	form := &source{contentType: "multipart/form-data; boundary=" + boundary}
	for _, file := range files {
		metadata, err := json.Marshal(wire.FileMetadata{
			Path: file.Path, Mode: writtenMode(file.Mode), Owner: file.Owner, Group: file.Group,
		})
		if err != nil {
			return nil, err
		}
		heads := partHead(boundary, "metadata", "application/json") + string(metadata) + "\r\n" +
			partHead(boundary, "file", "application/octet-stream")
		contents := file.Contents
		if contents == nil {
			contents = strings.NewReader("")
		}
		form.parts = append(form.parts, strings.NewReader(heads), contents, strings.NewReader("\r\n"))
	}
	form.parts = append(form.parts, strings.NewReader("--"+boundary+"--\r\n"))
	return form, nil
}

func partHead(boundary, name, contentType string) string {
	// The published daemon wants every part to have a file name; which does not matter.
	return "--" + boundary + "\r\nContent-Disposition: form-data; name=\"" + name + "\"; filename=\"" + name +
		"\"\r\nContent-Type: " + contentType + "\r\n\r\n"
}

// sized is a reader of bytes in memory, of strings and bytes.
type sized interface {
	io.ReaderAt
	Len() int
	Size() int64
}

// call is the source as the body of a request.
func (s *source) call() call {
	sent := &body{contentType: s.contentType, inMemory: true}
	for _, part := range s.parts {
		if held, ok := part.(sized); ok {
			sent.length += int64(held.Len())
		} else {
			sent.inMemory = false
		}
	}
	if sent.inMemory {
		starts := make([]int64, len(s.parts))
		for at, part := range s.parts {
			starts[at] = part.(sized).Size() - int64(part.(sized).Len())
		}
		sent.open = func() io.Reader {
			readers := make([]io.Reader, len(s.parts))
			for at, part := range s.parts {
				held := part.(sized)
				readers[at] = io.NewSectionReader(held, starts[at], held.Size()-starts[at])
			}
			return io.MultiReader(readers...)
		}
		return call{body: sent}
	}
	sent.length = -1
	stream := &beginning{reader: &sourceReader{io.MultiReader(s.parts...), s}}
	sent.open = func() io.Reader { return stream }
	sent.again = stream.again
	// Takes as long as the source takes to give its bytes.
	return call{body: sent, timeout: forever}
}

// explain ends the reading, and puts the error of a reader before the error of the request that it caused.
func (s *source) explain(err error) error {
	s.isOver.Store(true)
	if failed := s.failed.Load(); err != nil && failed != nil {
		return *failed
	}
	return err
}

// sourceReader keeps what a reader failed with, which explains better than the connection why sending failed.
type sourceReader struct {
	io.Reader
	source *source
}

func (r *sourceReader) Read(piece []byte) (int, error) {
	if r.source.isOver.Load() {
		return 0, io.ErrClosedPipe
	}
	count, err := r.Reader.Read(piece)
	if err != nil && err != io.EOF {
		r.source.failed.Store(&err)
	}
	return count, err
}

// As much of a stream as net/http may have read before it finds that nothing of a request can leave: what it copies
// at once, and what it holds back to write with more.
const beginningBytesMax = 64 << 10

var errBeginningLost = errors.New("more was read of the stream than is kept to send it once more")

// beginning is a stream whose first bytes are kept, so that a request of which nothing left goes by another
// connection.
type beginning struct {
	mutex  sync.Mutex
	reader io.Reader
	// What was read so far, unless it was more than is kept.
	kept   []byte
	isLost bool
}

func (b *beginning) Read(piece []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.isLost {
		return b.reader.Read(piece)
	}
	count, err := b.reader.Read(piece)
	if len(b.kept)+count > beginningBytesMax {
		b.kept, b.isLost = nil, true
	} else {
		b.kept = append(b.kept, piece[:count]...)
	}
	return count, err
}

// again is the stream from its beginning.
func (b *beginning) again() (io.ReadCloser, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.isLost {
		return nil, errBeginningLost
	}
	kept := bytes.NewReader(b.kept)
	b.reader, b.kept = io.MultiReader(kept, b.reader), nil
	return io.NopCloser(b), nil
}

var _ sized = (*bytes.Reader)(nil)
