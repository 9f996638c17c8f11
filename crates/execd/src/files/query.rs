//! Query strings by bytes, so that a path which is not UTF-8 can be asked for.

use std::{ffi::OsString, os::unix::ffi::OsStringExt};

use http::Uri;

use super::error::{Error, Result};

/// The decoded parameters in order. `+` is a space and `%XX` a byte; a `%` that introduces no two
/// hexadecimal digits stands for itself, as browsers and Python's clients take it.
pub(super) struct Query(Vec<(Vec<u8>, Vec<u8>)>);

impl Query {
    pub(super) fn of(uri: &Uri) -> Self {
        Self::parse(uri.query().unwrap_or(""))
    }

    fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        });
        Self(pairs.collect())
    }

    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.0
            .iter()
            .filter(move |(key, _)| key == name.as_bytes())
            .map(|(_, value)| value.as_slice())
    }

    /// Every value of `path`, in order.
    pub(super) fn paths(&self) -> Vec<OsString> {
        self.values("path")
            .map(|value| OsString::from_vec(value.to_vec()))
            .collect()
    }

    /// The one `path` a route needs.
    pub(super) fn path(&self) -> Result<OsString> {
        let value = self
            .values("path")
            .next()
            .filter(|value| !value.is_empty())
            .ok_or(Error::MissingQuery("path"))?;
        Ok(OsString::from_vec(value.to_vec()))
    }

    pub(super) fn text(&self, name: &'static str) -> Result<Option<String>> {
        let Some(value) = self.values(name).next() else {
            return Ok(None);
        };
        let text = String::from_utf8(value.to_vec());
        text.map(Some).map_err(|_| Error::BadQuery {
            name,
            why: "it is not UTF-8 text".into(),
        })
    }

    /// A number of at least `least`.
    pub(super) fn number(&self, name: &'static str, least: u64) -> Result<Option<u64>> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        match text.parse::<u64>() {
            Ok(number) if number >= least => Ok(Some(number)),
            _ => Err(Error::BadQuery {
                name,
                why: format!("'{text}' is not a whole number of at least {least}"),
            }),
        }
    }

    /// True for the spellings the clients use; absent is false.
    pub(super) fn flag(&self, name: &'static str) -> Result<bool> {
        match self.text(name)?.as_deref() {
            None | Some("" | "false" | "False" | "FALSE" | "0" | "f" | "F") => Ok(false),
            Some("true" | "True" | "TRUE" | "1" | "t" | "T") => Ok(true),
            Some(other) => Err(Error::BadQuery {
                name,
                why: format!("'{other}' is neither true nor false"),
            }),
        }
    }
}

fn decode(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let digit = |at: usize| {
        bytes
            .get(at)
            .and_then(|b| char::from(*b).to_digit(16))
            .and_then(|d| u8::try_from(d).ok())
    };
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte == b'%'
            && let (Some(high), Some(low)) = (digit(at + 1), digit(at + 2))
        {
            out.push(high << 4 | low);
            at += 3;
            continue;
        }
        out.push(if byte == b'+' { b' ' } else { byte });
        at += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn repeated_encoded_and_odd_parameters() {
        let query =
            Query::parse("path=%2Fa+b&path=/c%FF&x&depth=2&path=%zz%4&limit=0&verbose=true");
        let paths: Vec<Vec<u8>> = query
            .paths()
            .iter()
            .map(|p| p.as_bytes().to_vec())
            .collect();
        assert_eq!(
            paths,
            [b"/a b".to_vec(), b"/c\xff".to_vec(), b"%zz%4".to_vec()]
        );
        assert_eq!(query.number("depth", 0).unwrap(), Some(2));
        assert_eq!(query.number("offset", 1).unwrap(), None);
        assert!(query.number("limit", 1).is_err());
        assert!(query.flag("verbose").unwrap());
        assert!(!query.flag("other").unwrap());
        assert!(query.flag("depth").is_err());
        assert!(Query::parse("").path().is_err());
        assert!(Query::parse("path=").path().is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_survive_encoding(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let encoded: String = bytes.iter().map(|b| format!("%{b:02x}")).collect();
            prop_assert_eq!(decode(&encoded), bytes);
        }

        #[test]
        fn any_text_decodes_without_panic(text in ".*") {
            decode(&text);
        }
    }
}
