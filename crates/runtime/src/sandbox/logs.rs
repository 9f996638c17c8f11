//! The end of a sandbox's log, within the limits asked for.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use lifecycle::backend::{LogQuery, Logs};

/// However much is asked for, no more than this is held in memory.
const READ_BYTES_MAX: u64 = 16 << 20;

/// Reads the newest part of the log at `path`. The log has no times, so `since` can only be
/// answered as a whole: nothing, if the file was last written before it.
pub(crate) fn read(path: &Path, query: LogQuery) -> io::Result<Logs> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Logs::default()),
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    read_until(&file, length, query)
}

/// The same of an open log, as it was when it had this length.
pub(crate) fn read_until(mut file: &File, length: u64, query: LogQuery) -> io::Result<Logs> {
    let metadata = file.metadata()?;
    if let Some(since) = query.since {
        let written = jiff::Timestamp::try_from(metadata.modified()?);
        if written.is_ok_and(|written| written < since) {
            return Ok(Logs::default());
        }
    }
    let wanted = u64::try_from(query.max_bytes)
        .unwrap_or(u64::MAX)
        .min(READ_BYTES_MAX);
    let start = length.saturating_sub(wanted);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(length - start).read_to_end(&mut bytes)?;
    Ok(cut(&bytes, start > 0, query))
}

fn cut(bytes: &[u8], is_cut_before: bool, query: LogQuery) -> Logs {
    let mut kept = bytes;
    let mut truncated = is_cut_before;
    if is_cut_before {
        // Not half a line, unless the line is all there is.
        if let Some(end) = kept.iter().position(|b| *b == b'\n')
            && end + 1 < kept.len()
        {
            kept = &kept[end + 1..];
        }
    }
    let body = kept.strip_suffix(b"\n").unwrap_or(kept);
    if query.tail_lines == 0 {
        return Logs {
            text: String::new(),
            truncated: truncated || !kept.is_empty(),
        };
    }
    let breaks = body.iter().enumerate().rev().filter(|(_, b)| **b == b'\n');
    if let Some((at, _)) = breaks.into_iter().nth(query.tail_lines - 1) {
        kept = &kept[at + 1..];
        truncated = true;
    }
    Logs {
        text: String::from_utf8_lossy(kept).into_owned(),
        truncated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, tail_lines: usize, max_bytes: usize, expected: (&str, bool)) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, text).unwrap();
        let logs = read(
            &path,
            LogQuery {
                tail_lines,
                since: None,
                max_bytes,
            },
        )
        .unwrap();
        assert_eq!((logs.text.as_str(), logs.truncated), expected);
    }

    #[test]
    fn the_newest_lines_within_both_limits() {
        check("a\nb\nc\n", 10, 100, ("a\nb\nc\n", false));
        check("a\nb\nc\n", 2, 100, ("b\nc\n", true));
        check("a\nb\nc", 1, 100, ("c", true));
        check("aaaa\nbb\nc\n", 10, 6, ("bb\nc\n", true));
        check("aaaa\nbb\nc\n", 10, 4, ("c\n", true));
        check("one long line", 10, 4, ("line", true));
        check("a\n", 0, 100, ("", true));
        check("", 5, 100, ("", false));
    }

    #[test]
    fn no_log_is_an_empty_log() {
        let query = LogQuery {
            tail_lines: 1,
            since: None,
            max_bytes: 1,
        };
        assert_eq!(
            read(Path::new("/nonexistent/log"), query).unwrap(),
            Logs::default()
        );
    }
}
