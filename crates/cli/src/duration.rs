//! Lengths of time as people write them: `10m`, `1h30m`, `90s`, or a number of seconds.

use std::time::Duration;

use jiff::Timestamp;

/// Text that is no length of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid duration '{0}'; write it like 10m, 1h30m or 90s")]
pub struct Invalid(String);

/// Reads a length of time.
pub fn parse(text: &str) -> Result<Duration, Invalid> {
    let invalid = || Invalid(text.to_owned());
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().map(Duration::from_secs).map_err(|_| invalid());
    }
    let mut rest = text;
    let mut seconds: u64 = 0;
    for (unit, length) in [('h', 3600), ('m', 60), ('s', 1)] {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 && rest[digits..].starts_with(unit) {
            let count: u64 = rest[..digits].parse().map_err(|_| invalid())?;
            seconds = count
                .checked_mul(length)
                .and_then(|more| seconds.checked_add(more))
                .ok_or_else(invalid)?;
            rest = &rest[digits + 1..];
        }
    }
    if rest.is_empty() && !text.is_empty() {
        Ok(Duration::from_secs(seconds))
    } else {
        Err(invalid())
    }
}

/// Reads a length of time, or `none` for no end.
pub fn parse_or_none(text: &str) -> Result<Option<Duration>, Invalid> {
    if text.trim().eq_ignore_ascii_case("none") {
        Ok(None)
    } else {
        parse(text).map(Some)
    }
}

/// A length of time as the published command line shows it: `0:10:00`.
pub fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (days, rest) = (seconds / 86400, seconds % 86400);
    let time = format!("{}:{:02}:{:02}", rest / 3600, rest % 3600 / 60, rest % 60);
    match days {
        0 => time,
        1 => format!("1 day, {time}"),
        days => format!("{days} days, {time}"),
    }
}

/// An instant as people say it: `3m ago`, `in 7m`.
pub fn relative(at: Timestamp, now: Timestamp) -> String {
    let seconds = at.duration_since(now).as_secs();
    let amount = match seconds.unsigned_abs() {
        amount @ 0..60 => format!("{amount}s"),
        amount @ 60..3600 => format!("{}m", amount / 60),
        // Shorter than two days in hours, so that a day more or less can be told.
        amount @ 3600..172_800 => format!("{}h", amount / 3600),
        amount => format!("{}d", amount / 86_400),
    };
    match seconds {
        0 => "now".to_owned(),
        1.. => format!("in {amount}"),
        _ => format!("{amount} ago"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_near_or_far() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let said =
            |seconds: i64| relative(Timestamp::from_second(1_000_000 + seconds).unwrap(), now);
        assert_eq!(said(-5), "5s ago");
        assert_eq!(said(-185), "3m ago");
        assert_eq!(said(7 * 60 + 30), "in 7m");
        assert_eq!(said(-7200), "2h ago");
        assert_eq!(said(90 * 3600), "in 3d");
        assert_eq!(said(0), "now");
    }

    #[test]
    fn reads_what_people_write() {
        for (text, seconds) in [
            ("10m", 600),
            ("1h30m", 5400),
            ("90s", 90),
            ("1h30m45s", 5445),
            ("7", 7),
            (" 2h ", 7200),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in [
            "",
            "m",
            "1x",
            "1m1h",
            "-5s",
            "1.5h",
            "99999999999999999999s",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse_or_none("None"), Ok(None));
    }

    #[test]
    fn shows_it_as_a_clock_does() {
        assert_eq!(clock(Duration::from_secs(600)), "0:10:00");
        assert_eq!(clock(Duration::from_secs(90061)), "1 day, 1:01:01");
    }
}
