package osb

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// DownloadedDirectory is what came of a download.
type DownloadedDirectory struct {
	// Entries are files, directories and links that were made.
	Entries int
	// Bytes are those of their contents.
	Bytes int64
	// Skipped are links that lead out of the directory, and links to other files of it, which are not made.
	Skipped []string
}

// packDirectory writes a directory of this machine as a tar stream.
func packDirectory(directory string, to io.Writer) error {
	archive := tar.NewWriter(to)
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == directory {
			return err
		}
		inside, err := filepath.Rel(directory, path)
		if err != nil {
			return err
		}
		return packEntry(archive, path, filepath.ToSlash(inside), entry)
	})
	return errors.Join(err, archive.Close())
}

func packEntry(archive *tar.Writer, path, name string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	target := ""
	switch info.Mode().Type() {
	case fs.ModeSymlink:
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	case 0, fs.ModeDir:
	default:
		// Sockets, pipes and devices mean nothing elsewhere.
		return nil
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	header.Name, header.Format = name, tar.FormatPAX
	if info.IsDir() {
		header.Name += "/"
	}
	// Who owns it here means nothing there.
	header.Uid, header.Gid, header.Uname, header.Gname = 0, 0, "", ""
	if err := archive.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	// A file that grows meanwhile is sent as long as it was.
	_, err = io.CopyN(archive, file, info.Size())
	return err
}

type directoryMode struct {
	path string
	mode fs.FileMode
}

// unpackDirectory unpacks a tar stream into a directory of this machine, which is made when it is not there.
func unpackDirectory(source io.Reader, local string) (DownloadedDirectory, error) {
	var done DownloadedDirectory
	if err := os.MkdirAll(local, 0o777); err != nil {
		return done, err
	}
	// Set when all is written: a directory without write permission must not refuse its own files.
	var modes []directoryMode
	archive := tar.NewReader(source)
	for {
		header, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return done, archiveError(err)
		}
		steps, err := stepsOf(header.Name)
		if err != nil {
			return done, err
		}
		if len(steps) == 0 {
			continue
		}
		path := filepath.Join(local, filepath.Join(steps...))
		if err := makeDirectories(local, steps[:len(steps)-1]); err != nil {
			return done, err
		}
		made := true
		switch {
		case header.Typeflag == tar.TypeDir:
			err = makeDirectories(local, steps)
			modes = append(modes, directoryMode{path, header.FileInfo().Mode().Perm()})
		case header.Typeflag == tar.TypeReg:
			var count int64
			count, err = writeFile(archive, path, header.FileInfo().Mode().Perm())
			done.Bytes += count
			err = archiveError(err)
		case header.Typeflag == tar.TypeSymlink && staysInside(steps, header.Linkname):
			if err = removeFile(path); err == nil {
				err = os.Symlink(header.Linkname, path)
			}
		default:
			done.Skipped = append(done.Skipped, header.Name)
			made = false
		}
		if err != nil {
			return done, err
		}
		if made {
			done.Entries++
		}
	}
	for _, directory := range slices.Backward(modes) {
		if err := os.Chmod(directory.path, directory.mode); err != nil {
			return done, err
		}
	}
	return done, nil
}

// archiveError leaves errors of the connection as they are; all else is that the archive is none.
func archiveError(err error) error {
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
		return untrustedError("an archive is not readable: "+err.Error(), "download it again")
	}
	return err
}

// stepsOf is the way to an entry, which must not lead out of the directory.
func stepsOf(name string) ([]string, error) {
	if strings.HasPrefix(name, "/") || strings.ContainsAny(name, "\x00") || !filepath.IsLocal(filepath.FromSlash(strings.TrimRight("./"+name, "/"))) {
		return nil, outsideError(name)
	}
	var steps []string
	for _, step := range strings.Split(name, "/") {
		if step == ".." {
			return nil, outsideError(name)
		}
		if step != "" && step != "." {
			steps = append(steps, step)
		}
	}
	return steps, nil
}

func outsideError(name string) error {
	return untrustedError(fmt.Sprintf("an archive has %q, which leads out of the directory", name), "do not trust this sandbox")
}

// staysInside says whether a link at this place leads to a place in the same directory.
func staysInside(steps []string, target string) bool {
	if target == "" || strings.HasPrefix(target, "/") || filepath.IsAbs(target) {
		return false
	}
	up, isInside := 0, false
	for _, step := range strings.Split(target, "/") {
		switch {
		case step == "" || step == ".":
		case step != "..":
			isInside = true
		case isInside:
			// After another link, ".." leads elsewhere than it reads.
			return false
		default:
			up++
		}
	}
	return up <= len(steps)-1
}

// makeDirectories makes each on the way; what stands there and is none, as a link to one, is in the way.
func makeDirectories(local string, steps []string) error {
	path := local
	for _, step := range steps {
		path = filepath.Join(path, step)
		err := os.Mkdir(path, 0o777)
		if err == nil {
			continue
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return untrustedError(path+" is in the way of an archive and no directory", "download to an empty directory")
		}
	}
	return nil
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func writeFile(source io.Reader, path string, mode fs.FileMode) (int64, error) {
	if err := removeFile(path); err != nil {
		return 0, err
	}
	// O_EXCL follows no link and opens nothing that was there.
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return 0, err
	}
	count, err := io.Copy(file, source)
	if err == nil {
		err = file.Chmod(mode)
	}
	return count, errors.Join(err, file.Close())
}
