//! The fields of tar headers: numbers in their several spellings, pax lines, maps of holes.

use std::io;

use super::{BLOCK, SparseMap};

/// Pieces of one sparse file: 4 MiB of memory, and more fragments than real images hold.
const SPARSE_PIECES_MAX: usize = 1 << 18;

/// Fields that pax headers and GNU long names override.
#[derive(Default)]
pub(super) struct Overrides {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    pub(super) mtime: Option<(i64, u32)>,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) sparse: SparseFields,
}

#[derive(Default)]
pub(super) struct SparseFields {
    pub(super) major: Option<u64>,
    pub(super) minor: Option<u64>,
    pub(super) name: Option<Vec<u8>>,
    pub(super) real_size: Option<u64>,
    pub(super) map: Vec<u64>,
    pub(super) has_map: bool,
}

pub(super) fn bad(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}

pub(super) fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap_or_default()
}

pub(super) fn header_path(header: &[u8; BLOCK]) -> Vec<u8> {
    let name = until_nul(&header[..100]);
    // Only POSIX ustar has a prefix there; old GNU keeps other things in its place.
    let prefix = if &header[257..263] == b"ustar\0" {
        until_nul(&header[345..500])
    } else {
        b""
    };
    if prefix.is_empty() {
        name.to_vec()
    } else {
        [prefix, b"/", name].concat()
    }
}

/// A numeric field: octal digits, or big-endian base 256 when the first bit is set.
pub(super) fn number(field: &[u8]) -> io::Result<i64> {
    if field[0] & 0x80 != 0 {
        let negative = field[0] & 0x40 != 0;
        let mut value: i128 = if negative { -1 } else { 0 };
        for (i, byte) in field.iter().enumerate() {
            let byte = if i == 0 && !negative {
                byte & 0x7f
            } else {
                *byte
            };
            value = (value << 8) | i128::from(byte);
        }
        return i64::try_from(value).map_err(|_| bad("a number in a header is too large"));
    }
    let digits = until_nul(field).trim_ascii();
    digits.iter().try_fold(0_i64, |value, digit| match digit {
        b'0'..=b'7' => value
            .checked_mul(8)
            .map(|value| value + i64::from(digit - b'0'))
            .ok_or_else(|| bad("a number in a header is too large")),
        _ => Err(bad("a number in a header is not octal")),
    })
}

pub(super) fn unsigned(value: i64) -> io::Result<u64> {
    u64::try_from(value).map_err(|_| bad("a size is negative"))
}

pub(super) fn owner(pax: Option<u64>, field: &[u8]) -> io::Result<u32> {
    let id = match pax {
        Some(id) => id,
        None => unsigned(number(field)?)?,
    };
    // The largest value is the kernel's "do not change".
    match u32::try_from(id) {
        Ok(id) if id != u32::MAX => Ok(id),
        _ => Err(bad(format!("the owner {id} is not a user or group id"))),
    }
}

fn decimal(text: &[u8]) -> io::Result<u64> {
    let is_decimal = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_decimal);
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| bad("a pax number is not decimal"))
}

/// Seconds with an optional sign and fraction.
fn pax_time(text: &[u8]) -> io::Result<(i64, u32)> {
    let (is_negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut parts = text.splitn(2, |b| *b == b'.');
    let seconds = decimal(parts.next().unwrap_or_default())?;
    let seconds = i64::try_from(seconds).map_err(|_| bad("a pax time is too large"))?;
    let mut nanos = 0;
    let fraction = parts.next().unwrap_or_default();
    for i in 0..9 {
        let digit = fraction.get(i).copied().unwrap_or(b'0');
        if !digit.is_ascii_digit() {
            return Err(bad("a pax time is not a number"));
        }
        nanos = nanos * 10 + u32::from(digit - b'0');
    }
    Ok(match (is_negative, nanos) {
        (false, nanos) => (seconds, nanos),
        (true, 0) => (-seconds, 0),
        (true, nanos) => (-seconds - 1, 1_000_000_000 - nanos),
    })
}

pub(super) fn read_pax(mut bytes: &[u8], overrides: &mut Overrides) -> io::Result<()> {
    const BROKEN: &str = "a pax header is not made of '<length> <key>=<value>' lines";
    while !bytes.is_empty() && bytes[0] != 0 {
        let space = bytes
            .iter()
            .position(|b| *b == b' ')
            .ok_or_else(|| bad(BROKEN))?;
        let length = usize::try_from(decimal(&bytes[..space])?).map_err(|_| bad(BROKEN))?;
        let line = bytes.get(space + 1..length).ok_or_else(|| bad(BROKEN))?;
        let line = line.strip_suffix(b"\n").ok_or_else(|| bad(BROKEN))?;
        let equals = line
            .iter()
            .position(|b| *b == b'=')
            .ok_or_else(|| bad(BROKEN))?;
        pax_field(&line[..equals], &line[equals + 1..], overrides)?;
        bytes = &bytes[length..];
    }
    Ok(())
}

fn pax_field(key: &[u8], value: &[u8], overrides: &mut Overrides) -> io::Result<()> {
    let sparse = &mut overrides.sparse;
    match key {
        b"path" if !value.is_empty() => overrides.path = Some(value.to_vec()),
        b"linkpath" if !value.is_empty() => overrides.link = Some(value.to_vec()),
        b"size" => overrides.size = Some(decimal(value)?),
        b"uid" => overrides.uid = Some(decimal(value)?),
        b"gid" => overrides.gid = Some(decimal(value)?),
        b"mtime" => overrides.mtime = Some(pax_time(value)?),
        b"GNU.sparse.major" => sparse.major = Some(decimal(value)?),
        b"GNU.sparse.minor" => sparse.minor = Some(decimal(value)?),
        b"GNU.sparse.name" => sparse.name = Some(value.to_vec()),
        b"GNU.sparse.realsize" | b"GNU.sparse.size" => sparse.real_size = Some(decimal(value)?),
        b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => {
            sparse.has_map = true;
            push_sparse_number(&mut sparse.map, decimal(value)?)?;
        }
        b"GNU.sparse.map" => {
            sparse.has_map = true;
            for number in value
                .split(|b| *b == b',')
                .filter(|number| !number.is_empty())
            {
                push_sparse_number(&mut sparse.map, decimal(number)?)?;
            }
        }
        _ => {
            if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                overrides.xattrs.push((name.to_vec(), value.to_vec()));
            }
        }
    }
    Ok(())
}

fn push_sparse_number(map: &mut Vec<u64>, number: u64) -> io::Result<()> {
    sparse_numbers(map.len() as u64 / 2)?;
    map.push(number);
    Ok(())
}

pub(super) fn sparse_numbers(pieces: u64) -> io::Result<usize> {
    match usize::try_from(pieces) {
        Ok(pieces) if pieces < SPARSE_PIECES_MAX => Ok(pieces * 2),
        _ => Err(bad(format!(
            "a sparse file has more than {SPARSE_PIECES_MAX} pieces"
        ))),
    }
}

pub(super) fn gnu_sparse_pieces(fields: &[u8], map: &mut SparseMap) -> io::Result<()> {
    for piece in fields.chunks_exact(24) {
        let (offset, length) = (number(&piece[..12])?, number(&piece[12..])?);
        if until_nul(&piece[..12]).is_empty() && piece[0] & 0x80 == 0 {
            break;
        }
        sparse_numbers(map.len() as u64)?;
        map.push((unsigned(offset)?, unsigned(length)?));
    }
    Ok(())
}

pub(super) fn check_sparse(map: &[(u64, u64)], stored: u64, length: u64) -> io::Result<()> {
    let mut end = 0;
    let mut total = 0_u64;
    for (offset, piece) in map {
        let piece_end = offset
            .checked_add(*piece)
            .filter(|piece_end| *piece_end <= length);
        let Some(piece_end) = piece_end.filter(|_| *offset >= end) else {
            return Err(bad("a sparse file's pieces overlap or leave the file"));
        };
        end = piece_end;
        total += piece;
    }
    if total == stored {
        Ok(())
    } else {
        Err(bad("a sparse file's map does not fit its contents"))
    }
}
