//! How settings describe themselves: the traits behind [`section!`](crate::section).

use std::collections::BTreeMap;
use std::path::PathBuf;

use secrecy::SecretString;
use serde::de::DeserializeOwned;
use toml::Value;

/// One setting.
#[derive(Debug, Clone)]
pub struct Key {
    /// Dotted path, `server.port`.
    pub path: String,
    /// What it takes, to go after "must be".
    pub kind: &'static str,
    /// What it means, line by line.
    pub docs: &'static [&'static str],
    /// Its default as TOML; `None` where it has none.
    pub default: Option<String>,
    /// Never shown.
    pub is_secret: bool,
    /// Whether a value fits. The error is empty, or says more, beginning with a separator.
    pub(super) check: fn(&Value) -> Result<(), String>,
}

impl Key {
    /// Adds a key for a setting; what an implementation of [`Described`] for a setting does.
    pub fn add<T: Setting>(
        default: &T,
        path: String,
        docs: &'static [&'static str],
        keys: &mut Vec<Key>,
    ) {
        add(Some(default), path, docs, keys);
    }

    /// The environment variable that overrides it.
    pub fn variable(&self, prefix: &str) -> String {
        format!("{prefix}{}", self.path.replace('.', "_").to_uppercase())
    }
}

/// Something that has a place in the configuration: a setting or a section of them.
pub trait Described {
    /// Adds its keys. `self` is the default.
    fn describe(&self, path: String, docs: &'static [&'static str], keys: &mut Vec<Key>);
}

/// A type that one key can have.
pub trait Setting: DeserializeOwned {
    /// What it takes, to go after "must be".
    const KIND: &'static str;
    /// Never shown.
    const IS_SECRET: bool = false;

    /// The value as TOML, for a default; `None` where there is nothing to show.
    fn show(&self) -> Option<Value>;
}

/// All keys of a program's configuration.
pub(super) fn keys<T: Described + Default>() -> Vec<Key> {
    let mut keys = Vec::new();
    T::default().describe(String::new(), &[], &mut keys);
    keys
}

fn add<T: Setting>(
    value: Option<&T>,
    path: String,
    docs: &'static [&'static str],
    keys: &mut Vec<Key>,
) {
    let default = value.and_then(T::show).map(|value| value.to_string());
    let check = |value: &Value| match T::deserialize(value.clone()) {
        Ok(_) => Ok(()),
        Err(error) if value.is_table() || value.is_array() => Err(format!(": {}", error.message())),
        Err(_) => Err(String::new()),
    };
    keys.push(Key {
        path,
        kind: T::KIND,
        docs,
        default,
        is_secret: T::IS_SECRET,
        check,
    });
}

macro_rules! plain_settings {
    ($($kind:literal: $($type:ty),+;)+) => {$($(
        impl Setting for $type {
            const KIND: &'static str = $kind;

            fn show(&self) -> Option<Value> {
                Value::try_from(self).ok()
            }
        }

        impl Described for $type {
            fn describe(&self, path: String, docs: &'static [&'static str], keys: &mut Vec<Key>) {
                Key::add(self, path, docs, keys);
            }
        }
    )+)+};
}

plain_settings! {
    "a text": String;
    "a path": PathBuf;
    "a whole number from 0 to 65535": u16;
    "a whole number": u32, u64;
    "a number": f64;
    "true or false": bool;
    "a list of texts": Vec<String>;
    "a list of paths": Vec<PathBuf>;
    "a table of texts": BTreeMap<String, String>;
    "a table of lists of texts": BTreeMap<String, Vec<String>>;
}

impl Setting for SecretString {
    const KIND: &'static str = "a text";
    const IS_SECRET: bool = true;

    fn show(&self) -> Option<Value> {
        None
    }
}

impl<T: Setting> Described for Option<T> {
    fn describe(&self, path: String, docs: &'static [&'static str], keys: &mut Vec<Key>) {
        add(self.as_ref(), path, docs, keys);
    }
}

/// Declares a section of the configuration: a struct with documented, typed, defaulted settings.
///
/// ```
/// # use daemon::section;
/// section! {
///     /// Where to listen.
///     pub struct Server {
///         /// The port. 0 takes any free one.
///         port: u16 = 8080,
///     }
/// }
/// assert_eq!(Server::default().port, 8080);
/// ```
///
/// A field whose type is another section nests it.
#[macro_export]
macro_rules! section {
    ($(
        $(#[doc = $about:literal])*
        $visibility:vis struct $name:ident {$(
            $(#[doc = $doc:literal])+
            $(#[serde($($attribute:tt)*)])?
            $field:ident $(as $key:literal)?: $type:ty = $default:expr,
        )*}
    )+) => {$(
        $(#[doc = $about])*
        #[derive(Debug, Clone, ::serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        $visibility struct $name {$(
            $(#[doc = $doc])+
            $(#[serde(rename = $key)])?
            $(#[serde($($attribute)*)])?
            pub $field: $type,
        )*}

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $crate::config::Described for $name {
            fn describe(
                &self,
                path: String,
                _: &'static [&'static str],
                keys: &mut Vec<$crate::config::Key>,
            ) {
                let at = |name: &str| {
                    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
                };
                $({
                    let name = [$($key,)? stringify!($field)][0];
                    self.$field.describe(at(name), &[$($doc),+], keys);
                })*
            }
        }
    )+};
}
