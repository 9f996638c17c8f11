package osb

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// archived is an archive of these entries; what ends with "->" and a target is a link.
func archived(t *testing.T, entries ...string) *bytes.Buffer {
	t.Helper()
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	for _, entry := range entries {
		header := &tar.Header{Name: entry, Mode: 0o600, Size: 1, Typeflag: tar.TypeReg}
		if name, target, ok := strings.Cut(entry, "->"); ok {
			header = &tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeSymlink}
		}
		if err := writer.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if header.Size > 0 {
			if _, err := writer.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return &archive
}

func TestAnArchiveWritesNothingOutsideOfItsDirectory(t *testing.T) {
	place := t.TempDir()
	inside := filepath.Join(place, "in")
	for _, entries := range [][]string{{"../out"}, {"/out"}, {"a/../../out"}, {"s->.", "s/f"}} {
		if _, err := unpackDirectory(archived(t, entries...), inside); !errors.Is(err, Unreadable) {
			t.Errorf("%v: %v", entries, err)
		}
	}
	links := []string{"l0->/etc/passwd", "l1->../..", "l2->a/../../..", "l3->.."}
	done, err := unpackDirectory(archived(t, links...), inside)
	if err != nil || len(done.Skipped) != len(links) {
		t.Errorf("%v %v", done, err)
	}
	if err := os.Symlink(filepath.Join(place, "out"), filepath.Join(inside, "f")); err != nil {
		t.Fatal(err)
	}
	if done, err = unpackDirectory(archived(t, "f"), inside); err != nil || done.Entries != 1 || done.Bytes != 1 {
		t.Errorf("%v %v", done, err)
	}
	left, err := os.ReadDir(place)
	if err != nil || len(left) != 1 {
		t.Errorf("something is outside: %v %v", left, err)
	}
	torn := archived(t, "f").Bytes()
	if _, err := unpackDirectory(bytes.NewReader(torn[:512]), inside); !errors.Is(err, Unreadable) {
		t.Errorf("half an archive: %v", err)
	}
}

func TestADirectoryIsPackedAsItIs(t *testing.T) {
	place := t.TempDir()
	long := strings.Repeat("n", 120)
	from := filepath.Join(place, "from")
	if err := errors.Join(
		os.MkdirAll(filepath.Join(from, "sub"), 0o755), os.WriteFile(filepath.Join(from, "sub", long), []byte("long name"), 0o755),
		os.WriteFile(filepath.Join(from, "empty"), nil, 0o600), os.Symlink("sub/"+long, filepath.Join(from, "link")),
	); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := packDirectory(from, &archive); err != nil {
		t.Fatal(err)
	}
	done, err := unpackDirectory(&archive, filepath.Join(place, "to"))
	equal(t, []any{done, err}, []any{DownloadedDirectory{Entries: 4, Bytes: 9}, nil})
	content, err := os.ReadFile(filepath.Join(place, "to/link"))
	equal(t, []any{string(content), err}, []any{"long name", nil})
	info, err := os.Stat(filepath.Join(place, "to/sub", long))
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v %v", info, err)
	}
}
