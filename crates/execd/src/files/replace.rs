//! `POST /files/replace`: text replaced in files, each file whole or not at all.
//!
//! A file is read in pieces and the new content is written beside it; files in which nothing was
//! found are left alone. The files are all prepared before the first one changes, so a missing file
//! or a full disk changes none.

use std::{
    fs::File,
    io::{self, Read, Seek, Write},
    path::Path,
};

use memchr::memmem::Finder;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};

use super::{
    error::{Error, Result},
    permission::Attributes,
    staged::{Staged, aside},
};

/// One read.
const PIECE: usize = 256 * 1024;

/// Prepares the replacement of `old` by `new` in a file. Gives how often `old` was found, and the
/// changed file, to be published, if it was found at all.
pub(super) fn prepare(path: &Path, old: &str, new: &str) -> Result<(u64, Option<Staged>)> {
    if old.is_empty() {
        return Err(Error::BadBody(format!(
            "'old' for '{}' is empty; say what is to be replaced",
            path.display()
        )));
    }
    let mut file = open(path)?;
    let reading = |e| Error::io("reading", path, e);
    let finder = Finder::new(old);
    // A first look: a file without the text is neither copied nor touched.
    if replace(&mut file, &mut io::sink(), &finder, b"").map_err(reading)? == 0 {
        return Ok((0, None));
    }
    file.rewind().map_err(reading)?;
    let mut staged = Staged::create(path, Attributes::default())?;
    let writing = |e| Error::io("writing", path, e);
    if staged.is_direct() {
        let (mut copy, _) = aside()?;
        io::copy(&mut file, &mut copy).map_err(writing)?;
        copy.rewind().map_err(reading)?;
        file = copy;
    }
    let count =
        replace(&mut file, &mut &*staged.file(), &finder, new.as_bytes()).map_err(writing)?;
    staged.finish(false)?;
    Ok((count, Some(staged)))
}

fn open(path: &Path) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file =
        openat(CWD, path, flags, Mode::empty()).map_err(|e| Error::io("reading", path, e))?;
    let stat = fstat(&file).map_err(|e| Error::io("reading", path, e))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Error::WrongKind {
            path: path.into(),
            what: "is not a regular file",
        });
    }
    Ok(file.into())
}

/// Copies `from` to `to` with every occurrence replaced, from the left, without overlap.
fn replace(
    from: &mut impl Read,
    to: &mut impl Write,
    old: &Finder<'_>,
    new: &[u8],
) -> io::Result<u64> {
    let kept = old.needle().len() - 1;
    let mut window: Vec<u8> = Vec::with_capacity(PIECE + kept);
    let mut out: Vec<u8> = Vec::with_capacity(PIECE);
    let mut count = 0;
    loop {
        let read = from.by_ref().take(PIECE as u64).read_to_end(&mut window)?;
        let mut done = 0;
        out.clear();
        while let Some(at) = old.find(&window[done..]) {
            out.extend_from_slice(&window[done..done + at]);
            out.extend_from_slice(new);
            done += at + old.needle().len();
            count += 1;
        }
        // What is left may begin an occurrence that ends in the next piece.
        let sure = if read == 0 {
            window.len()
        } else {
            window.len().saturating_sub(kept).max(done)
        };
        out.extend_from_slice(&window[done..sure]);
        to.write_all(&out)?;
        window.drain(..sure);
        if read == 0 {
            return Ok(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use proptest::prelude::*;

    use super::*;

    /// Gives a byte at a time, so that every occurrence meets a seam.
    struct Slowly<'a>(&'a [u8]);

    impl Read for Slowly<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let n = self.0.len().min(1).min(buffer.len());
            buffer[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_library(text in "[ab]{0,40}", old in "[ab]{1,4}", new in "[abc]{0,4}") {
            let mut out = Vec::new();
            let count = replace(&mut Slowly(text.as_bytes()), &mut out, &Finder::new(&old), new.as_bytes()).unwrap();
            prop_assert_eq!(String::from_utf8(out).unwrap(), text.replace(&old, &new));
            prop_assert_eq!(count, text.matches(&old).count() as u64);
        }
    }

    #[test]
    fn an_occurrence_across_two_pieces_is_found() {
        let text = [vec![b'x'; PIECE - 2], b"needle".to_vec(), vec![b'y'; PIECE]].concat();
        let mut out = Vec::new();
        assert_eq!(
            replace(
                &mut text.as_slice(),
                &mut out,
                &Finder::new("needle"),
                b"pin"
            )
            .unwrap(),
            1
        );
        assert_eq!(out.len(), text.len() - 3);
    }

    #[test]
    fn files_change_whole_keep_their_mode_and_are_left_alone_without_a_hit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "one two one").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let (count, staged) = prepare(&path, "one", "1").unwrap();
        assert_eq!(count, 2);
        assert_eq!(fs::read_to_string(&path).unwrap(), "one two one");
        staged.unwrap().publish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1 two 1");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert!(matches!(prepare(&path, "three", "3"), Ok((0, None))));
        assert!(matches!(prepare(&path, "", "3"), Err(Error::BadBody(_))));
        assert!(matches!(
            prepare(dir.path(), "a", "3"),
            Err(Error::WrongKind { .. })
        ));
        assert!(matches!(
            prepare(&dir.path().join("none"), "a", "3"),
            Err(Error::NotFound(_))
        ));
    }
}
