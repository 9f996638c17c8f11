//! How single values are read from the wire where the protocol is more lenient than the type:
//! `null` for an empty list, instants without an offset.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::{Deserialize, Deserializer, de};

/// Reads `null` as the type's default.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads an instant: RFC 3339, or the same without an offset, which is taken as UTC, or Unix
/// seconds.
pub(crate) fn lenient_timestamp<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Timestamp, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Text(String),
        Seconds(i64),
    }
    const RIGHT: &str = "expected an instant such as 2026-01-02T03:04:05Z";
    match Form::deserialize(deserializer).map_err(|_| de::Error::custom(RIGHT))? {
        Form::Text(text) => parse_timestamp(&text)
            .ok_or_else(|| de::Error::custom(format_args!("{text:?} is not an instant; {RIGHT}"))),
        Form::Seconds(seconds) => {
            Timestamp::from_second(seconds).map_err(|_| de::Error::custom(RIGHT))
        }
    }
}

fn parse_timestamp(text: &str) -> Option<Timestamp> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some(at);
    }
    let local: DateTime = text.parse().ok()?;
    Some(local.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// Declares an enum of texts to which later versions of a protocol may add: a text that is not
/// known is read as `Unknown`, never as an error.
macro_rules! open_enum {
    (
        $(#[$doc:meta])* $name:ident {
            $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)*
        } unknown as $unknown:literal
    ) => {
        open_enum!(@type $(#[$doc])* $name { $($(#[$variant_doc])* $variant = $text,)* } $unknown);
        open_enum!(@schema $name [$($text,)*] {
            use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
            ObjectBuilder::new()
                .schema_type(SchemaType::Type(Type::String))
                .examples([$(serde_json::Value::from($text),)*])
                .description(Some(concat!(
                    $("`", $text, "` ",)*
                    "are the known values; later versions may add others."
                )))
                .into()
        });
    };
    (
        $(#[$doc:meta])* $name:ident {
            $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)*
        } unknown as $unknown:literal, but sends only these
    ) => {
        open_enum!(@type $(#[$doc])* $name { $($(#[$variant_doc])* $variant = $text,)* } $unknown);
        open_enum!(@schema $name [$($text,)*] {
            use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
            ObjectBuilder::new()
                .schema_type(SchemaType::Type(Type::String))
                .enum_values(Some([$($text,)*]))
                .into()
        });
    };
    (@schema $name:ident [$($text:literal,)*] $schema:block) => {
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                $schema
            }
        }

        impl utoipa::ToSchema for $name {}
    };
    (
        @type $(#[$doc:meta])* $name:ident {
            $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)*
        } $unknown:literal
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
            /// Something that this version does not know.
            Unknown,
        }

        impl $name {
            /// Everything this version knows.
            pub const KNOWN: &'static [Self] = &[$(Self::$variant,)*];

            /// As it stands on the wire.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Unknown => $unknown,
                }
            }

            /// Reads it from the wire.
            pub fn from_wire(text: &str) -> Self {
                match text {
                    $($text => Self::$variant,)*
                    _ => Self::Unknown,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Self, D::Error> {
                struct Visitor;

                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("a text")
                    }

                    fn visit_str<E>(self, text: &str) -> Result<$name, E> {
                        Ok($name::from_wire(text))
                    }
                }

                deserializer.deserialize_str(Visitor)
            }
        }
    };
}
pub(crate) use open_enum;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_read_in_every_form_clients_send() {
        let want: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        for text in [
            "2026-01-02T03:04:05Z",
            "2026-01-02T03:04:05",
            "2026-01-02T04:04:05+01:00",
        ] {
            assert_eq!(parse_timestamp(text), Some(want), "{text}");
        }
        assert_eq!(parse_timestamp("tomorrow"), None);
    }
}
