//! The conditional headers of a download: whether the client's copy is still good.

use http::{
    HeaderMap, HeaderValue,
    header::{
        self, ETAG, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
        IF_UNMODIFIED_SINCE, LAST_MODIFIED,
    },
};
use jiff::{Timestamp, fmt::rfc2822::DateTimePrinter};
use rustix::fs::Stat;

/// What identifies the content of a file at one moment.
pub(super) struct Version {
    tag: String,
    modified: Timestamp,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Serve,
    /// The client's part belongs to another version: give the whole.
    ServeWhole,
    /// The client's copy is still good: 304.
    NotModified,
    /// The file is not the one the client means: 412.
    PreconditionFailed,
}

impl Version {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            tag: format!(
                "\"{:x}-{:x}-{:x}.{:x}\"",
                stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec
            ),
            // HTTP dates have no fraction, and neither may what they are compared with.
            modified: Timestamp::from_second(stat.st_mtime).unwrap_or(Timestamp::UNIX_EPOCH),
        }
    }

    pub(super) fn describe(&self, headers: &mut HeaderMap) {
        if let Ok(tag) = HeaderValue::from_str(&self.tag) {
            headers.insert(ETAG, tag);
        }
        let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&self.modified);
        if let Some(date) = date.ok().and_then(|date| HeaderValue::from_str(&date).ok()) {
            headers.insert(LAST_MODIFIED, date);
        }
    }

    fn is_listed(&self, list: &str) -> bool {
        list.split(',')
            .map(str::trim)
            .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == self.tag)
    }
}

/// Weighs the headers in the order RFC 9110 §13.2.2 gives.
pub(super) fn judge(headers: &HeaderMap, version: &Version) -> Verdict {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let since = |name: HeaderName| text(name).and_then(date);
    let failed = Verdict::PreconditionFailed;
    match text(IF_MATCH) {
        Some(list) if !version.is_listed(list) => return failed,
        None if since(IF_UNMODIFIED_SINCE).is_some_and(|date| version.modified > date) => {
            return failed;
        }
        _ => {}
    }
    match text(IF_NONE_MATCH) {
        Some(list) if version.is_listed(list) => return Verdict::NotModified,
        None if since(IF_MODIFIED_SINCE).is_some_and(|date| version.modified <= date) => {
            return Verdict::NotModified;
        }
        _ => {}
    }
    match text(IF_RANGE) {
        Some(tag) if headers.contains_key(header::RANGE) => {
            let same = tag == version.tag || date(tag) == Some(version.modified);
            if same {
                Verdict::Serve
            } else {
                Verdict::ServeWhole
            }
        }
        _ => Verdict::Serve,
    }
}

fn date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(text)
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_condition_both_ways() {
        let version = Version {
            tag: "\"t\"".into(),
            modified: Timestamp::from_second(1_700_000_000).unwrap(),
        };
        let mut described = HeaderMap::new();
        version.describe(&mut described);
        let own_date = described[LAST_MODIFIED].to_str().unwrap();
        assert_eq!(own_date, "Tue, 14 Nov 2023 22:13:20 GMT");
        let before = "Tue, 14 Nov 2023 22:13:19 GMT";

        let check = |fields: &[(HeaderName, &str)], expected: Verdict| {
            let headers = fields
                .iter()
                .map(|(name, value)| (name.clone(), value.parse().unwrap()))
                .collect();
            assert_eq!(judge(&headers, &version), expected, "{fields:?}");
        };
        let unchanged = || Verdict::NotModified;
        let failed = || Verdict::PreconditionFailed;
        check(&[], Verdict::Serve);
        check(&[(IF_NONE_MATCH, "\"x\", W/\"t\"")], unchanged());
        check(&[(IF_NONE_MATCH, "*")], unchanged());
        check(
            &[(IF_NONE_MATCH, "\"x\""), (IF_MODIFIED_SINCE, own_date)],
            Verdict::Serve,
        );
        check(&[(IF_MODIFIED_SINCE, own_date)], unchanged());
        check(&[(IF_MODIFIED_SINCE, before)], Verdict::Serve);
        check(&[(IF_MODIFIED_SINCE, "nonsense")], Verdict::Serve);
        check(&[(IF_MATCH, "\"x\"")], failed());
        check(&[(IF_MATCH, "\"t\"")], Verdict::Serve);
        check(&[(IF_UNMODIFIED_SINCE, before)], failed());
        check(&[(IF_UNMODIFIED_SINCE, own_date)], Verdict::Serve);
        check(
            &[(IF_RANGE, "\"x\""), (header::RANGE, "bytes=0-1")],
            Verdict::ServeWhole,
        );
        check(
            &[(IF_RANGE, "\"t\""), (header::RANGE, "bytes=0-1")],
            Verdict::Serve,
        );
        check(
            &[(IF_RANGE, own_date), (header::RANGE, "bytes=0-1")],
            Verdict::Serve,
        );
        check(
            &[(IF_RANGE, before), (header::RANGE, "bytes=0-1")],
            Verdict::ServeWhole,
        );
    }
}
