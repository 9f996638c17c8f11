//! Reads tar archives from people we do not trust.
//!
//! Understands what builders and tar programs write: v7, ustar, GNU (long names, base-256
//! numbers, sparse files) and pax (paths, sizes, owners, times, xattrs, sparse files). Names are
//! bytes, never text. It touches no file system; [`super::unpack`] does.
//!
//! It is our own because the memory it takes is bounded whatever the archive claims, and because
//! a size given by pax moves the position of the next header: readers that disagree about that
//! can be shown two different archives in one.

mod fields;

use std::io::{self, Read};

use fields::{
    Overrides, SparseFields, bad, check_sparse, gnu_sparse_pieces, header_path, number, owner,
    read_pax, sparse_numbers, unsigned, until_nul,
};

/// One record of a tar.
const BLOCK: usize = 512;
/// Pax headers and GNU long names are read into memory whole. Room for the kernel's largest set
/// of xattrs (64 KiB each) several times over.
const EXTENSION_BYTES_MAX: u64 = 1 << 20;
/// The kernel takes no longer path (PATH_MAX, with its final NUL).
pub(super) const PATH_BYTES_MAX: usize = 4095;

/// Where the stored bytes of a sparse file go: offset and length, ascending.
pub(super) type SparseMap = Vec<(u64, u64)>;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    HardLink,
    Symlink,
    Directory,
    Fifo,
    /// A character or block device.
    Device,
}

/// One entry; its contents follow in the reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    /// Target of a link.
    pub(super) link: Vec<u8>,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime_seconds: i64,
    pub(super) mtime_nanos: u32,
    /// Length of the file, holes included.
    pub(super) size: u64,
    /// Where the contents go, for a sparse file.
    pub(super) sparse: Option<SparseMap>,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Reads entries one after the other.
pub(super) struct Reader<R> {
    input: R,
    /// Contents of the current entry not yet read.
    remaining: u64,
    /// Bytes that fill its last record.
    padding: u64,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            remaining: 0,
            padding: 0,
        }
    }

    /// What the entries are read from; its rest follows the archive's end.
    pub(super) fn into_inner(self) -> R {
        self.input
    }

    /// The next entry, or `None` at the archive's end. Skips what was not read of the last one.
    pub(super) fn next(&mut self) -> io::Result<Option<Entry>> {
        let mut overrides = Overrides::default();
        // Shared by all extended headers of one entry, so that their number is bounded too.
        let mut budget = EXTENSION_BYTES_MAX;
        loop {
            let rest = self.remaining + self.padding;
            self.skip(rest)?;
            (self.remaining, self.padding) = (0, 0);
            let Some(header) = self.header()? else {
                return Ok(None);
            };
            let size = number(&header[124..136])?;
            match header[156] {
                b'x' => read_pax(&self.extension(size, &mut budget)?, &mut overrides)?,
                b'L' => {
                    overrides.path = Some(until_nul(&self.extension(size, &mut budget)?).to_vec());
                }
                b'K' => {
                    overrides.link = Some(until_nul(&self.extension(size, &mut budget)?).to_vec());
                }
                // Global pax headers carry comments; volume labels are not files.
                b'g' | b'V' => self.expect_contents(unsigned(size)?)?,
                kind => return self.entry(&header, kind, size, overrides).map(Some),
            }
        }
    }

    fn entry(
        &mut self,
        header: &[u8; BLOCK],
        flag: u8,
        size: i64,
        mut overrides: Overrides,
    ) -> io::Result<Entry> {
        let mut path = overrides.path.take().unwrap_or_else(|| header_path(header));
        let kind = match flag {
            0 if path.ends_with(b"/") => Kind::Directory,
            0 | b'0' | b'7' | b'S' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'3' | b'4' => Kind::Device,
            b'5' => Kind::Directory,
            b'6' => Kind::Fifo,
            other => return Err(bad(format!("unknown entry type {:?}", char::from(other)))),
        };
        // Links, directories and devices have no contents whatever their size field says.
        let stored = match (kind, overrides.size) {
            (Kind::File, Some(size)) => size,
            (Kind::File, None) => unsigned(size)?,
            _ => 0,
        };
        self.expect_contents(stored)?;
        let mut length = stored;
        let mut sparse = None;
        if kind == Kind::File {
            if flag == b'S' {
                length = unsigned(number(&header[483..495])?)?;
                sparse = Some(self.gnu_sparse_map(header)?);
            } else if let Some((map, real_size)) = self.pax_sparse_map(&mut overrides.sparse)? {
                length = real_size;
                sparse = Some(map);
            }
            if let Some(name) = overrides.sparse.name.take() {
                path = name;
            }
        }
        if let Some(map) = &sparse {
            check_sparse(map, self.remaining, length)?;
        }
        let link = overrides
            .link
            .unwrap_or_else(|| until_nul(&header[157..257]).to_vec());
        for (what, name) in [("name", &path), ("link target", &link)] {
            if name.len() > PATH_BYTES_MAX {
                return Err(bad(format!(
                    "a {what} is longer than {PATH_BYTES_MAX} bytes"
                )));
            }
            if name.contains(&0) {
                return Err(bad(format!("a {what} contains a NUL byte")));
            }
        }
        let (mtime_seconds, mtime_nanos) = match overrides.mtime {
            Some(time) => time,
            None => (number(&header[136..148])?, 0),
        };
        Ok(Entry {
            path,
            kind,
            link,
            mode: (number(&header[100..108])? & 0o7777) as u32,
            uid: owner(overrides.uid, &header[108..116])?,
            gid: owner(overrides.gid, &header[116..124])?,
            mtime_seconds,
            mtime_nanos,
            size: length,
            sparse,
            xattrs: overrides.xattrs,
        })
    }

    /// A header record, or `None` at the end: a record of zeroes, or no more bytes at all.
    fn header(&mut self) -> io::Result<Option<[u8; BLOCK]>> {
        let mut header = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            match self.input.read(&mut header[filled..])? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(bad("the archive ends within a header")),
                count => filled += count,
            }
        }
        if header.iter().all(|b| *b == 0) {
            return Ok(None);
        }
        let no_tar = "a header's checksum does not fit: this is not a tar archive";
        let stored = number(&header[148..156]).map_err(|_| bad(no_tar))?;
        let blanked = |i: usize, b: u8| if (148..156).contains(&i) { b' ' } else { b };
        let unsigned: i64 = header
            .iter()
            .enumerate()
            .map(|(i, b)| i64::from(blanked(i, *b)))
            .sum();
        // Some old programs summed signed characters.
        let signed: i64 = header
            .iter()
            .enumerate()
            .map(|(i, b)| i64::from(blanked(i, *b) as i8))
            .sum();
        if stored != unsigned && stored != signed {
            return Err(bad(no_tar));
        }
        Ok(Some(header))
    }

    fn expect_contents(&mut self, size: u64) -> io::Result<()> {
        let blocks = size.checked_next_multiple_of(BLOCK as u64);
        self.padding = blocks.ok_or_else(|| bad("an entry's size is absurd"))? - size;
        self.remaining = size;
        Ok(())
    }

    fn extension(&mut self, size: i64, budget: &mut u64) -> io::Result<Vec<u8>> {
        let size = unsigned(size)?;
        // A record each, so that empty ones do not come for free.
        let Some(rest) = budget.checked_sub(size.max(BLOCK as u64)) else {
            return Err(bad(format!(
                "an entry's extended headers are over the limit of {EXTENSION_BYTES_MAX} bytes"
            )));
        };
        *budget = rest;
        self.expect_contents(size)?;
        let mut bytes = vec![0; size as usize];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let skipped = io::copy(&mut (&mut self.input).take(bytes), &mut io::sink())?;
        if skipped == bytes {
            Ok(())
        } else {
            Err(bad("the archive ends within an entry"))
        }
    }

    /// The map of an old GNU sparse file: four pieces in the header, then records of 21.
    fn gnu_sparse_map(&mut self, header: &[u8; BLOCK]) -> io::Result<SparseMap> {
        let mut map = Vec::new();
        gnu_sparse_pieces(&header[386..482], &mut map)?;
        let mut is_extended = header[482] != 0;
        while is_extended {
            let mut record = [0; BLOCK];
            self.input.read_exact(&mut record).map_err(cut_short)?;
            gnu_sparse_pieces(&record[..504], &mut map)?;
            is_extended = record[504] != 0;
        }
        Ok(map)
    }

    /// The map of a pax sparse file: in the headers (0.0, 0.1) or before the contents (1.0).
    fn pax_sparse_map(
        &mut self,
        fields: &mut SparseFields,
    ) -> io::Result<Option<(SparseMap, u64)>> {
        let numbers = match (fields.major, fields.minor) {
            (Some(1), Some(0)) => self.leading_sparse_map()?,
            (None | Some(0), _) if fields.has_map => std::mem::take(&mut fields.map),
            (None, None) => return Ok(None),
            (major, minor) => {
                return Err(bad(format!("sparse format {major:?}.{minor:?} is unknown")));
            }
        };
        let real_size = fields
            .real_size
            .ok_or_else(|| bad("a sparse file gives no size"))?;
        let map = numbers
            .chunks_exact(2)
            .map(|pair| (pair[0], pair[1]))
            .collect();
        Ok(Some((map, real_size)))
    }

    fn leading_sparse_map(&mut self) -> io::Result<Vec<u64>> {
        let mut record = [0; BLOCK];
        let mut position = BLOCK;
        let mut numbers = Vec::new();
        let mut expected = None;
        while expected != Some(numbers.len()) {
            let mut value = 0_u64;
            let mut digits = 0;
            loop {
                if position == BLOCK {
                    self.read_exact(&mut record)?;
                    position = 0;
                }
                let byte = record[position];
                position += 1;
                match byte {
                    b'0'..=b'9' if digits < 19 => value = value * 10 + u64::from(byte - b'0'),
                    b'\n' if digits > 0 => break,
                    _ => return Err(bad("a sparse file's map is not a list of numbers")),
                }
                digits += 1;
            }
            match expected {
                None => expected = Some(sparse_numbers(value)?),
                Some(_) => numbers.push(value),
            }
        }
        Ok(numbers)
    }
}

/// Contents of the current entry.
impl<R: Read> Read for Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.remaining)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let count = self.input.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(bad("the archive ends within an entry"));
        }
        self.remaining -= count as u64;
        Ok(count)
    }
}

fn cut_short(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => bad("the archive ends within an entry"),
        _ => error,
    }
}
