//! The `Range` header: one range of bytes.
//!
//! Of several ranges the first is served, as the clients of this API are used to; a range that is
//! not understood or lies outside the file is answered with 416. Units other than bytes are ignored,
//! as HTTP wants.

/// What a `Range` header asks for, given the size of the content.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) enum ByteRange {
    /// No range, or one in a unit we do not serve.
    All,
    /// From `start`, `length` bytes; never empty, never beyond the end.
    Part {
        start: u64,
        length: u64,
    },
    Unsatisfiable,
}

pub(super) fn wanted(header: Option<&str>, size: u64) -> ByteRange {
    let Some((unit, ranges)) = header.and_then(|text| text.split_once('=')) else {
        return if header.is_some() {
            ByteRange::Unsatisfiable
        } else {
            ByteRange::All
        };
    };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return ByteRange::All;
    }
    let first = ranges
        .split(',')
        .map(str::trim)
        .find(|range| !range.is_empty());
    match first.and_then(|range| bounds(range, size)) {
        Some((start, end)) if start < end => ByteRange::Part {
            start,
            length: end - start,
        },
        _ => ByteRange::Unsatisfiable,
    }
}

/// `a-b`, `a-` or `-n` as start and end (exclusive) within the content.
fn bounds(range: &str, size: u64) -> Option<(u64, u64)> {
    let (from, to) = range.split_once('-')?;
    match (from.trim(), to.trim()) {
        ("", last) => Some((size.saturating_sub(number(last)?), size)),
        (from, "") => Some((number(from)?, size)),
        (from, to) => {
            let (from, to) = (number(from)?, number(to)?);
            (from <= to).then(|| (from, to.saturating_add(1).min(size)))
        }
    }
}

fn number(text: &str) -> Option<u64> {
    // `parse` takes a sign, which HTTP does not.
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // More digits than a u64 holds is a number beyond every file.
    Some(text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(start: u64, length: u64) -> ByteRange {
        ByteRange::Part { start, length }
    }

    #[test]
    fn ranges_of_ten_bytes() {
        let of_ten = |text: &str| wanted(Some(text), 10);
        assert_eq!(wanted(None, 10), ByteRange::All);
        assert_eq!(of_ten("bytes=0-3"), part(0, 4));
        assert_eq!(of_ten("bytes=3-3"), part(3, 1));
        assert_eq!(of_ten("Bytes = 4-"), part(4, 6));
        assert_eq!(of_ten("bytes=-4"), part(6, 4));
        assert_eq!(of_ten("bytes=-40"), part(0, 10));
        assert_eq!(of_ten("bytes=5-99999999999999999999999"), part(5, 5));
        assert_eq!(of_ten("bytes=2-3, 7-8"), part(2, 2));
        assert_eq!(of_ten("lines=1-2"), ByteRange::All);
        for wrong in [
            "bytes=10-",
            "bytes=-0",
            "bytes=",
            "bytes=5-4",
            "bytes=a-b",
            "bytes=-",
            "bytes=+1-2",
            "bytes",
            "0-3",
        ] {
            assert_eq!(of_ten(wrong), ByteRange::Unsatisfiable, "{wrong}");
        }
        assert_eq!(wanted(Some("bytes=0-"), 0), ByteRange::Unsatisfiable);
    }

    proptest! {
        #[test]
        fn a_part_is_never_empty_and_never_outside(text in "bytes=[-0-9, ]{0,30}", size in any::<u64>()) {
            if let ByteRange::Part { start, length } = wanted(Some(&text), size) {
                prop_assert!(length > 0);
                prop_assert!(start.checked_add(length).is_some_and(|end| end <= size));
            }
        }

        #[test]
        fn what_is_asked_for_is_what_is_given(size in 1u64..1000, a in 0u64..1000, b in 0u64..1000) {
            let got = wanted(Some(&format!("bytes={a}-{b}")), size);
            let expected = if a > b || a >= size { ByteRange::Unsatisfiable } else { part(a, b.min(size - 1) - a + 1) };
            prop_assert_eq!(got, expected);
        }

        #[test]
        fn any_text_is_answered(text in ".*", size in any::<u64>()) {
            wanted(Some(&text), size);
        }
    }
}
