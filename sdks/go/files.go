package osb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/osb-dev/osb/sdks/go/wire"
)

// tarType is what a directory is sent as.
const tarType = "application/x-tar"

// FileInfo is what is known of a file without following a link.
type FileInfo struct {
	// Path is absolute.
	Path string
	// RawPath is the path again, percent-encoded, when its bytes are not UTF-8.
	RawPath string
	// Type is what it is, where the daemon says so.
	Type wire.FileKind
	// Size is in bytes.
	Size int64
	// ModifiedAt is when its content last changed.
	ModifiedAt time.Time
	// CreatedAt is when it was made.
	CreatedAt time.Time
	// Owner is its owner's name, or number where it has no name.
	Owner string
	// Group is its group's name, or number where it has no name.
	Group string
	// Mode are its permission bits.
	Mode fs.FileMode
}

// Permission is owner, group and mode to set; what is zero stays as it is.
type Permission struct {
	// Mode are permission bits: 0o644.
	Mode fs.FileMode
	// Owner is a name or a number.
	Owner string
	// Group is a name or a number.
	Group string
}

// Rename is a file or directory to move.
type Rename struct {
	// From is where it is.
	From string
	// To is where it goes, which must not exist.
	To string
}

// Replacement is text to find, and what to put in its place.
type Replacement = wire.ReplaceFileContentItem

// Files are the files and directories of a sandbox.
type Files struct {
	sandbox *Sandbox
	// As whom: /v1/filesystem/{uid}/{gid}, or nothing for the daemon's own user.
	prefix string
}

// AsUser is the files as this user and group see them.
func (f *Files) AsUser(uid, gid uint32) *Files {
	prefix := "/v1/filesystem/" + strconv.FormatUint(uint64(uid), 10) + "/" + strconv.FormatUint(uint64(gid), 10)
	return &Files{f.sandbox, prefix}
}

// send sends a request to the daemon as the user of these files.
func (f *Files) send(ctx context.Context, method, path string, c call) (*answer, error) {
	exec, err := f.sandbox.exec(ctx)
	if err != nil {
		return nil, err
	}
	return exec.send(ctx, method, f.prefix+path, c)
}

func (f *Files) bytes(ctx context.Context, method, path string, c call) ([]byte, error) {
	exec, err := f.sandbox.exec(ctx)
	if err != nil {
		return nil, err
	}
	return exec.bytes(ctx, method, f.prefix+path, c)
}

func (f *Files) done(ctx context.Context, method, path string, c call) error {
	_, err := f.bytes(ctx, method, path, c)
	return err
}

func askFiles[T any](ctx context.Context, f *Files, method, path string, c call) (T, error) {
	exec, err := f.sandbox.exec(ctx)
	if err != nil {
		var none T
		return none, err
	}
	return sendJSON[T](ctx, exec, method, f.prefix+path, c)
}

// Read reads a file.
func (f *Files) Read(ctx context.Context, path string) ([]byte, error) {
	stream, err := f.Download(ctx, path)
	if err != nil {
		return nil, err
	}
	return stream.bytes()
}

// ReadText reads a file that is UTF-8 text.
func (f *Files) ReadText(ctx context.Context, path string) (string, error) {
	content, err := f.Read(ctx, path)
	if err == nil && !utf8.Valid(content) {
		err = untrustedError(path+" is not UTF-8 text", "read it as bytes")
	}
	return string(content), err
}

// ReadRange reads the bytes from start up to, and not with, end; fewer where the file ends before.
func (f *Files) ReadRange(ctx context.Context, path string, start, end int64) ([]byte, error) {
	if start < 0 {
		return nil, argumentError("%d to %d are not the offsets of bytes", start, end)
	}
	if end <= start {
		return []byte{}, nil
	}
	header := "bytes=" + strconv.FormatInt(start, 10) + "-" + strconv.FormatInt(end-1, 10)
	stream, err := f.ReadRangeHeader(ctx, path, header)
	if err != nil {
		return nil, err
	}
	return stream.bytes()
}

// ReadRangeHeader reads a part of a file, named as in a Range header: bytes=0-99, bytes=-5.
func (f *Files) ReadRangeHeader(ctx context.Context, path, header string) (*ByteStream, error) {
	if header == "" || strings.ContainsFunc(header, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, argumentError("%q is not a range", header)
	}
	asked := call{query: queryOf("path", path), headers: map[string]string{"Range": header}}
	got, err := f.send(ctx, http.MethodGet, "/files/download", asked)
	if err != nil {
		return nil, err
	}
	return newByteStream(got), nil
}

// ReadLines reads so many lines of a file from one on, which counts from 1.
func (f *Files) ReadLines(ctx context.Context, path string, first, count int) (string, error) {
	asked := call{query: queryOf("path", path, "offset", strconv.Itoa(first), "limit", strconv.Itoa(count))}
	text, err := f.bytes(ctx, http.MethodGet, "/files/download", asked)
	return string(text), err
}

// Download reads a file as it arrives.
func (f *Files) Download(ctx context.Context, path string) (*ByteStream, error) {
	got, err := f.send(ctx, http.MethodGet, "/files/download", call{query: queryOf("path", path)})
	if err != nil {
		return nil, err
	}
	return newByteStream(got), nil
}

// Write writes a file, whole or not at all; directories on the way are made.
func (f *Files) Write(ctx context.Context, path string, contents []byte, permission *Permission) error {
	return f.Upload(ctx, path, bytes.NewReader(contents), permission)
}

// WriteText writes a file of text.
func (f *Files) WriteText(ctx context.Context, path, text string, permission *Permission) error {
	return f.Upload(ctx, path, strings.NewReader(text), permission)
}

// Upload writes a file with what a reader gives, which is never whole in memory.
func (f *Files) Upload(ctx context.Context, path string, contents io.Reader, permission *Permission) error {
	file := WriteFile{Path: path, Contents: contents}
	if permission != nil {
		file.Permission = *permission
	}
	return f.WriteAll(ctx, []WriteFile{file})
}

// WriteAll writes files in one request.
func (f *Files) WriteAll(ctx context.Context, files []WriteFile) error {
	if len(files) == 0 {
		return nil
	}
	form, err := newForm(files)
	if err != nil {
		return err
	}
	err = f.done(ctx, http.MethodPost, "/files/upload", form.call())
	return form.explain(err)
}

// Info is what is known of files, by the paths as given.
func (f *Files) Info(ctx context.Context, paths ...string) (map[string]FileInfo, error) {
	found, err := askFiles[map[string]wire.FileInfo](ctx, f, http.MethodGet, "/files/info", call{query: each(paths)})
	if err != nil {
		return nil, err
	}
	infos := make(map[string]FileInfo, len(found))
	for path, info := range found {
		infos[path] = infoOf(info)
	}
	return infos, nil
}

// Exists says whether a path exists.
func (f *Files) Exists(ctx context.Context, path string) (bool, error) {
	found, err := f.Info(ctx, path)
	if isNotFound(err) {
		return false, nil
	}
	return len(found) > 0, err
}

// List is what is in a directory, this many levels deep.
func (f *Files) List(ctx context.Context, path string, depth int) ([]FileInfo, error) {
	return f.infos(ctx, "/directories/list", queryOf("path", path, "depth", strconv.Itoa(depth)))
}

// Search finds files below a directory by a glob.
func (f *Files) Search(ctx context.Context, path, pattern string) ([]FileInfo, error) {
	return f.infos(ctx, "/files/search", queryOf("path", path, "pattern", pattern))
}

func (f *Files) infos(ctx context.Context, path, query string) ([]FileInfo, error) {
	found, err := askFiles[[]wire.FileInfo](ctx, f, http.MethodGet, path, call{query: query})
	if err != nil {
		return nil, err
	}
	infos := make([]FileInfo, len(found))
	for at, info := range found {
		infos[at] = infoOf(info)
	}
	return infos, nil
}

// Rename moves a file or directory.
func (f *Files) Rename(ctx context.Context, from, to string) error {
	return f.RenameAll(ctx, []Rename{{from, to}})
}

// RenameAll moves files and directories.
func (f *Files) RenameAll(ctx context.Context, moves []Rename) error {
	items := make([]wire.RenameFileItem, len(moves))
	for at, move := range moves {
		items[at] = wire.RenameFileItem{Src: move.From, Dest: move.To}
	}
	return f.done(ctx, http.MethodPost, "/files/mv", call{json: items})
}

// Delete removes files; one that is not there is no error.
func (f *Files) Delete(ctx context.Context, paths ...string) error {
	return f.done(ctx, http.MethodDelete, "/files", call{query: each(paths)})
}

// CreateDirectories makes directories with their parents; the permission, if there is one, is for all of them.
func (f *Files) CreateDirectories(ctx context.Context, paths []string, permission *Permission) error {
	given := make(map[string]Permission, len(paths))
	for _, path := range paths {
		given[path] = Permission{}
		if permission != nil {
			given[path] = *permission
		}
	}
	return f.done(ctx, http.MethodPost, "/directories", call{json: permissions(given)})
}

// DeleteDirectories removes directories with everything in them.
func (f *Files) DeleteDirectories(ctx context.Context, paths ...string) error {
	return f.done(ctx, http.MethodDelete, "/directories", call{query: each(paths)})
}

// SetPermissions sets mode, owner and group of files, by their paths.
func (f *Files) SetPermissions(ctx context.Context, files map[string]Permission) error {
	return f.done(ctx, http.MethodPost, "/files/permissions", call{json: permissions(files)})
}

// Replace replaces every occurrence of old in a file and returns how many there were; -1 where the daemon
// does not say.
func (f *Files) Replace(ctx context.Context, path, old, replacement string) (int64, error) {
	counts, err := f.ReplaceAll(ctx, map[string]Replacement{path: {Old: old, New: replacement}})
	if err != nil {
		return 0, err
	}
	if count, ok := counts[path]; ok {
		return count, nil
	}
	return -1, nil
}

// ReplaceAll replaces text in files and returns how often each was found, where the daemon says so.
func (f *Files) ReplaceAll(ctx context.Context, replacements map[string]Replacement) (map[string]int64, error) {
	sent := call{query: queryOf("verbose", "true"), json: replacements}
	text, err := f.bytes(ctx, http.MethodPost, "/files/replace", sent)
	if err != nil {
		return nil, err
	}
	counts := map[string]int64{}
	// Older daemons answer nothing.
	if len(bytes.TrimSpace(text)) > 0 {
		var found map[string]wire.ReplaceFileContentResult
		if err := json.Unmarshal(text, &found); err != nil {
			return nil, unreadableError("POST /files/replace", err)
		}
		for path, result := range found {
			counts[path] = result.ReplacedCount
		}
	}
	return counts, nil
}

// DownloadArchive is a directory with everything below it, as a tar stream (extension).
func (f *Files) DownloadArchive(ctx context.Context, directory string) (*ByteStream, error) {
	got, err := f.send(ctx, http.MethodGet, "/directories/archive", call{query: queryOf("path", directory)})
	if err != nil {
		return nil, err
	}
	return newByteStream(got), nil
}

// UploadArchive unpacks a tar stream into a directory, which is made when it is not there (extension).
func (f *Files) UploadArchive(ctx context.Context, directory string, archive io.Reader) (wire.ArchiveResponse, error) {
	form := newSource(tarType, archive)
	sent := form.call()
	sent.query, sent.timeout = queryOf("path", directory), forever
	answered, err := askFiles[wire.ArchiveResponse](ctx, f, http.MethodPut, "/directories/archive", sent)
	return answered, form.explain(err)
}

// UploadDirectory sends a directory of this machine (extension).
func (f *Files) UploadDirectory(ctx context.Context, local, directory string) (wire.ArchiveResponse, error) {
	reader, writer := io.Pipe()
	go func() { writer.CloseWithError(packDirectory(local, writer)) }()
	answered, err := f.UploadArchive(ctx, directory, reader)
	// Ends the packing of an archive that was not read to its end.
	reader.CloseWithError(errors.Join(err, io.ErrClosedPipe))
	return answered, err
}

// DownloadDirectory brings a directory to this machine (extension). What comes out of a sandbox is not
// trusted: nothing is written outside of the directory that was named, and no link is followed.
func (f *Files) DownloadDirectory(ctx context.Context, directory, local string) (DownloadedDirectory, error) {
	archive, err := f.DownloadArchive(ctx, directory)
	if err != nil {
		return DownloadedDirectory{}, err
	}
	defer archive.Close()
	return unpackDirectory(archive, local)
}

func each(paths []string) string {
	var query strings.Builder
	for _, path := range paths {
		addPair(&query, "path", path)
	}
	return query.String()
}

func permissions(files map[string]Permission) map[string]wire.FilePermission {
	written := make(map[string]wire.FilePermission, len(files))
	for path, given := range files {
		written[path] = wire.FilePermission{Mode: writtenMode(given.Mode), Owner: given.Owner, Group: given.Group}
	}
	return written
}

func infoOf(info wire.FileInfo) FileInfo {
	return FileInfo{
		Path: info.Path, RawPath: info.RawPath, Type: info.Type, Size: info.Size, ModifiedAt: info.ModifiedAt,
		CreatedAt: info.CreatedAt, Owner: info.Owner, Group: info.Group, Mode: modeOf(info.Mode),
	}
}

// specialModes are the bits that Go keeps elsewhere than the kernel.
var specialModes = map[fs.FileMode]fs.FileMode{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000}

// writtenMode is permission bits as the protocol writes them: octal digits as a decimal number, 755 for 0o755.
func writtenMode(mode fs.FileMode) *wire.FileMode {
	bits := mode & 0o7777
	for special, bit := range specialModes {
		if mode&special != 0 {
			bits |= bit
		}
	}
	if bits == 0 {
		return nil
	}
	digits, _ := strconv.ParseInt(strconv.FormatInt(int64(bits), 8), 10, 64)
	written := wire.FileMode(digits)
	return &written
}

// modeOf is the permission bits that the protocol writes so.
func modeOf(written wire.FileMode) fs.FileMode {
	bits, err := strconv.ParseUint(strconv.FormatInt(int64(written), 10), 8, 16)
	if err != nil {
		return 0
	}
	mode := fs.FileMode(bits) & fs.ModePerm
	for special, bit := range specialModes {
		if fs.FileMode(bits)&bit != 0 {
			mode |= special
		}
	}
	return mode
}
