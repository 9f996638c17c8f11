//! Keys and tokens of ours in what a client sends. They are found by their value, wherever they stand,
//! because a client may show them in a place that is also the application's: `Authorization`, a cookie,
//! a query.
//!
//! Knows no key: whether a value is one is asked of [`Sandboxes::is_secret`](crate::Sandboxes::is_secret).

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Bytes of a value that can be a key or a token. Ours have less than a hundred.
const SECRET_BYTES_MAX: usize = 512;

/// Bytes of a word in the middle of a value that can be one. A shorter one is found where it is the whole
/// value, or what follows the scheme of `Authorization`.
const WORD_BYTES_MIN: usize = 16;

/// What can stand around a word in the value of a header, by byte: every byte of every header is looked up,
/// and a search through the list for each took ten times as long.
const IS_DELIMITER: [bool; 256] = {
    let delimiters = b" \t,;:=&?/.\"'()<>@[]{}|";
    let mut table = [false; 256];
    let mut at = 0;
    while at < delimiters.len() {
        table[delimiters[at] as usize] = true;
        at += 1;
    }
    table
};

/// Basic credentials as clients really send them, with their padding or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Whether the value of a header holds a secret.
pub(crate) fn is_in_value(value: &[u8], is_secret: impl Fn(&[u8]) -> bool) -> bool {
    let is_secret = |value: &[u8]| is_possible(value) && is_secret(value);
    let value = value.trim_ascii();
    if is_secret(value) {
        return true;
    }
    let Some(at) = value.iter().position(is_delimiter) else {
        return false;
    };
    let (first, rest) = (&value[..at], value[at + 1..].trim_ascii());
    is_secret(rest)
        || (first.eq_ignore_ascii_case(b"basic") && is_in_basic(rest, &is_secret))
        || value
            .split(is_delimiter)
            .any(|word| word.len() >= WORD_BYTES_MIN && is_secret(word))
}

/// Whether Basic credentials (RFC 7617) hold a secret, as the user or as the password.
fn is_in_basic(credentials: &[u8], is_secret: &impl Fn(&[u8]) -> bool) -> bool {
    let Ok(decoded) = BASE64.decode(credentials) else {
        return false;
    };
    let Some(at) = decoded.iter().position(|byte| *byte == b':') else {
        return is_secret(&decoded);
    };
    is_secret(&decoded) || is_secret(&decoded[..at]) || is_secret(&decoded[at + 1..])
}

/// Whether a parameter of a query, as it stands in it, has a secret for its value or its name.
pub(crate) fn is_in_parameter(parameter: &str, is_secret: impl Fn(&[u8]) -> bool) -> bool {
    let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
    [name, value].into_iter().any(|text| {
        let decoded = percent_decode(text);
        is_in_value(&decoded, &is_secret)
    })
}

fn is_delimiter(byte: &u8) -> bool {
    IS_DELIMITER[usize::from(*byte)]
}

fn is_possible(value: &[u8]) -> bool {
    (1..=SECRET_BYTES_MAX).contains(&value.len())
}

/// Decodes `%41` and `+` as a form does (URL Standard, application/x-www-form-urlencoded parsing).
pub(crate) fn percent_decode(text: &str) -> Cow<'_, [u8]> {
    let bytes = text.as_bytes();
    if !bytes.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return bytes.into();
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, behind @ ..] = rest {
        rest = behind;
        let hex = |byte: &u8| char::from(*byte).to_digit(16);
        match (first, behind) {
            (b'+', _) => decoded.push(b' '),
            (b'%', [high, low, behind @ ..]) if hex(high).is_some() && hex(low).is_some() => {
                let digits = hex(high).zip(hex(low));
                let byte = digits.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
                decoded.extend(byte);
                rest = behind;
            }
            _ => decoded.push(*first),
        }
    }
    decoded.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";
    const SHORT: &str = "k e:y";

    fn is_ours(value: &[u8]) -> bool {
        [TOKEN, SHORT].iter().any(|ours| ours.as_bytes() == value)
    }

    #[test]
    fn a_secret_is_found_wherever_it_stands_in_a_value() {
        let basic = |text: &str| {
            let padded = base64::engine::general_purpose::STANDARD.encode(text);
            format!("Basic {padded}")
        };
        for value in [
            TOKEN.to_owned(),
            SHORT.to_owned(),
            format!(" {TOKEN}\t"),
            format!("Bearer {TOKEN}"),
            format!("bearer  {TOKEN}"),
            format!("Bearer {SHORT}"),
            format!("Token token=\"{TOKEN}\""),
            format!("ApiKey {TOKEN}, other=1"),
            format!("base64url.bearer.{TOKEN}, v1"),
            format!("http://host/path?opensandbox_token={TOKEN}&a=1"),
            format!("{{\"token\":\"{TOKEN}\"}}"),
            basic(&format!("user:{TOKEN}")),
            basic(&format!("{TOKEN}:")),
            basic(TOKEN),
            basic(&format!("user:{SHORT}")),
            basic(&format!("user:{TOKEN}"))
                .trim_end_matches('=')
                .to_owned(),
        ] {
            assert!(is_in_value(value.as_bytes(), is_ours), "{value}");
        }
        for value in [
            "",
            "Bearer",
            "Bearer ",
            "Basic !!!",
            "Basic dXNlcjpwYXNz",
            "Bearer 0123456789abcdef0123456789abcdeg",
            "text/html, application/json;q=0.9",
        ] {
            assert!(!is_in_value(value.as_bytes(), is_ours), "{value}");
        }
        let long = "a".repeat(SECRET_BYTES_MAX + 1);
        assert!(!is_in_value(long.as_bytes(), |_| true), "not even asked");
    }

    #[test]
    fn a_secret_is_found_in_a_parameter_however_it_is_encoded() {
        let escaped: String = TOKEN.bytes().map(|byte| format!("%{byte:02x}")).collect();
        for parameter in [
            format!("key={TOKEN}"),
            format!("key={escaped}"),
            format!("{TOKEN}=1"),
            TOKEN.to_owned(),
            "key=k+e%3Ay".to_owned(),
            format!("auth=Bearer+{TOKEN}"),
        ] {
            assert!(is_in_parameter(&parameter, is_ours), "{parameter}");
        }
        for parameter in ["", "=", "a=%", "a=%zz", "a=1", "a=%e2%82%ac"] {
            assert!(!is_in_parameter(parameter, is_ours), "{parameter}");
        }
    }
}
