//! Amounts of resources as Kubernetes writes them: `500m`, `1.5`, `512Mi`, `1G`.
//!
//! Kept in thousandths, the finest step any resource of ours has; smaller parts are rounded up,
//! so that a limit is never taken for nothing.

use std::fmt;
use std::str::FromStr;

use crate::problem::Excerpt;

/// An amount that is not negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    millis: u128,
}

/// Longer texts are no amounts that fit anything.
const QUANTITY_BYTES_MAX: usize = 40;

/// Why a text is not an amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseQuantityError {
    /// It is not a number with a suffix.
    #[error("{written} is not an amount: write a number such as 2, 1.5, 500m, 512Mi or 1G")]
    Malformed {
        /// What was written.
        written: String,
    },
    /// It is more than can be counted.
    #[error("{written} is too large: an amount is at most {max}", max = u64::MAX)]
    TooLarge {
        /// What was written.
        written: String,
    },
}

impl Quantity {
    /// An amount in thousandths.
    pub const fn from_millis(millis: u64) -> Self {
        Self {
            millis: millis as u128,
        }
    }

    /// In thousandths: what processors are counted in.
    pub fn millis(self) -> Option<u64> {
        u64::try_from(self.millis).ok()
    }

    /// In whole units, rounded up: what bytes are counted in.
    pub fn whole(self) -> u64 {
        // The parser holds every amount to what fits.
        u64::try_from(self.millis.div_ceil(1000)).unwrap_or(u64::MAX)
    }

    /// Whether it is nothing at all.
    pub const fn is_zero(self) -> bool {
        self.millis == 0
    }
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, ParseQuantityError> {
        let written = || Excerpt(text).to_string();
        let malformed = || ParseQuantityError::Malformed { written: written() };
        if text.len() > QUANTITY_BYTES_MAX {
            return Err(malformed());
        }
        let number = text.strip_prefix('+').unwrap_or(text);
        let (digits, suffix) = split_number(number).ok_or_else(malformed)?;
        let (numerator, denominator) = factor(suffix).ok_or_else(malformed)?;
        let millis = scale(digits, numerator, denominator);
        match millis {
            Some(millis) if millis <= u128::from(u64::MAX) * 1000 => Ok(Self { millis }),
            _ => Err(ParseQuantityError::TooLarge { written: written() }),
        }
    }
}

/// A number: its digits, and how many of them are behind the point.
#[derive(Clone, Copy)]
struct Digits<'a> {
    whole: &'a str,
    fraction: &'a str,
}

fn split_number(text: &str) -> Option<(Digits<'_>, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (whole, rest) = text.split_at(end);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => {
            let end = rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len());
            rest.split_at(end)
        }
        None => ("", rest),
    };
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    has_digits.then_some((Digits { whole, fraction }, suffix))
}

/// How many thousandths one unit of this suffix is, as a fraction.
fn factor(suffix: &str) -> Option<(u128, u128)> {
    const KIBI: u128 = 1024;
    const KILO: u128 = 1000;
    let thousandths = |units: u128| Some((units * 1000, 1));
    match suffix {
        "n" => Some((1, 1_000_000)),
        "u" => Some((1, 1000)),
        "m" => Some((1, 1)),
        "" => thousandths(1),
        "k" | "K" => thousandths(KILO),
        "M" => thousandths(KILO.pow(2)),
        "G" => thousandths(KILO.pow(3)),
        "T" => thousandths(KILO.pow(4)),
        "P" => thousandths(KILO.pow(5)),
        "E" => thousandths(KILO.pow(6)),
        "Ki" => thousandths(KIBI),
        "Mi" => thousandths(KIBI.pow(2)),
        "Gi" => thousandths(KIBI.pow(3)),
        "Ti" => thousandths(KIBI.pow(4)),
        "Pi" => thousandths(KIBI.pow(5)),
        "Ei" => thousandths(KIBI.pow(6)),
        _ => exponent(suffix),
    }
}

/// `e3` and `E3`, as Kubernetes takes them too.
fn exponent(suffix: &str) -> Option<(u128, u128)> {
    let digits = suffix.strip_prefix(['e', 'E'])?;
    let (is_negative, digits) = match digits.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, digits.strip_prefix('+').unwrap_or(digits)),
    };
    if digits.is_empty() || digits.len() > 2 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let power = 10_u128.checked_pow(digits.parse().ok()?)?;
    if is_negative {
        Some((1000, power))
    } else {
        Some((power.checked_mul(1000)?, 1))
    }
}

/// `digits * numerator / denominator`, rounded up; `None` when it does not fit.
fn scale(digits: Digits<'_>, numerator: u128, denominator: u128) -> Option<u128> {
    let mut all: u128 = 0;
    let mut denominator = denominator;
    for digit in digits.whole.bytes().chain(digits.fraction.bytes()) {
        all = all.checked_mul(10)?.checked_add(u128::from(digit - b'0'))?;
    }
    for _ in digits.fraction.bytes() {
        denominator = denominator.checked_mul(10)?;
    }
    Some(all.checked_mul(numerator)?.div_ceil(denominator))
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.millis.is_multiple_of(1000) {
            write!(f, "{}", self.millis / 1000)
        } else {
            write!(f, "{}m", self.millis)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, millis: u64, whole: u64) {
        let quantity: Quantity = text.parse().unwrap();
        assert_eq!(
            (quantity.millis(), quantity.whole()),
            (Some(millis), whole),
            "{text}"
        );
    }

    #[test]
    fn amounts_are_read_as_kubernetes_reads_them() {
        check("500m", 500, 1);
        check("1.5", 1500, 2);
        check("2", 2000, 2);
        check(".5", 500, 1);
        check("1.", 1000, 1);
        check("+1", 1000, 1);
        check("512Mi", 512 * 1024 * 1024 * 1000, 512 * 1024 * 1024);
        check("1G", 1_000_000_000_000, 1_000_000_000);
        check("0.5Gi", 512 * 1024 * 1024 * 1000, 512 * 1024 * 1024);
        check("1e3", 1_000_000, 1000);
        check("1E3", 1_000_000, 1000);
        check("100e-2", 1000, 1);
        check("1n", 1, 1);
        check("0", 0, 0);
        assert_eq!(
            "16Ei".parse::<Quantity>().map(Quantity::whole),
            Err(too_large("16Ei"))
        );
        assert_eq!("15Ei".parse::<Quantity>().unwrap().whole(), 15 << 60);
    }

    fn too_large(text: &str) -> ParseQuantityError {
        ParseQuantityError::TooLarge {
            written: format!("{text:?}"),
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "", ".", "m", "Mi", "-1", "1 Gi", "1gi", "1MiB", "1e", "1e333", "1.5.5", "٣", "0x10",
        ] {
            assert!(text.parse::<Quantity>().is_err(), "{text}");
        }
        let long = "1".repeat(10_000);
        assert!(long.parse::<Quantity>().unwrap_err().to_string().len() < 300);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            let _ = text.parse::<Quantity>();
        }

        #[test]
        fn what_is_written_reads_back(millis in any::<u64>()) {
            let quantity = Quantity::from_millis(millis);
            prop_assert_eq!(quantity.to_string().parse::<Quantity>(), Ok(quantity));
        }

        #[test]
        fn near_amounts_are_read_or_refused(text in r"[+-]?[0-9]{0,30}\.?[0-9]{0,12}[a-zA-Z]{0,3}[0-9]{0,3}") {
            let _ = text.parse::<Quantity>();
        }
    }
}
