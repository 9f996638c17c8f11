//! Names of the configuration that mean an image which is here: exactly those names, never a pattern, and that
//! image or an error, never what a registry has under the name.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::image_reference::ImageReference;
use lifecycle::backend::{Platform, Source};

use super::store::{Inner, Lease};
use super::{Config, Error, HOST};

/// The aliases, by their names in full.
#[derive(Debug, Default)]
pub(super) struct Aliases(HashMap<String, ImageReference>);

impl Aliases {
    /// Reads them from the configuration.
    pub(super) fn new(
        written: &BTreeMap<String, String>,
        default_registry: &str,
    ) -> Result<Self, Error> {
        let read = |text: &str| {
            let invalid = |message: &str| Error::InvalidReference {
                reference: text.to_owned(),
                message: message.to_owned(),
            };
            if text == HOST {
                return Err(invalid(
                    "host is this machine's own image and has no aliases",
                ));
            }
            let parsed = ImageReference::parse_with_registry(text, default_registry);
            let parsed = parsed.map_err(|error| invalid(error.reason()))?;
            if parsed.digest().is_some() {
                return Err(invalid(
                    "a digest names its content alone; aliases are names with a tag",
                ));
            }
            Ok(parsed.with_default_tag())
        };
        let pairs = written
            .iter()
            .map(|(alias, target)| Ok((read(alias)?.to_string(), read(target)?)));
        let aliases = pairs.collect::<Result<HashMap<_, _>, Error>>()?;
        for (alias, target) in &aliases {
            if aliases.contains_key(&target.to_string()) {
                return Err(Error::InvalidReference {
                    reference: alias.clone(),
                    message: format!("it is an alias of {target}, which is an alias itself"),
                });
            }
        }
        Ok(Self(aliases))
    }

    /// The image that this name in full stands for, if it is an alias.
    pub(super) fn target(&self, name: &ImageReference) -> Option<&ImageReference> {
        self.0.get(&name.to_string())
    }

    /// Refuses to give an image a name that would never mean it.
    pub(super) fn refuse_as_name(&self, name: &ImageReference) -> Result<(), Error> {
        match self.target(name) {
            None => Ok(()),
            Some(target) => Err(Error::InvalidReference {
                reference: name.to_string(),
                message: format!(
                    "the configuration makes it an alias of {target} (embedded.image_aliases); choose another name"
                ),
            }),
        }
    }
}

impl Config {
    /// What is wrong with the aliases, before a store is opened.
    pub fn check_aliases(&self) -> Result<(), Error> {
        Aliases::new(&self.aliases, &self.default_registry).map(drop)
    }
}

impl Inner {
    /// As [`Inner::parse`], for a name that an image is to get.
    pub(super) fn parse_new(&self, reference: &str) -> Result<ImageReference, Error> {
        let parsed = self.parse(reference)?;
        self.aliases.refuse_as_name(&parsed)?;
        Ok(parsed)
    }

    /// The image that a name of an alias stands for, kept; `None` for any other name.
    pub(super) fn find_alias(
        self: &Arc<Self>,
        name: &ImageReference,
        platform: &Platform,
    ) -> Option<Result<Lease, Error>> {
        let target = self.aliases.target(name)?;
        let source = Source::Image {
            reference: target.to_string(),
            auth: None,
        };
        let found = self.find_leased(&source, Some(platform));
        Some(found.and_then(|lease| lease.ok_or_else(|| not_here(name, target))))
    }
}

/// An alias whose image is not here. No registry is asked for it: what one has under the name is not what the
/// configuration means.
pub(super) fn not_here(alias: &ImageReference, target: &ImageReference) -> Error {
    Error::NotFound {
        reference: alias.to_string(),
        message: format!(
            "the configuration makes it an alias of {target} (embedded.image_aliases), which is not here; import or \
             build that image, or take the alias out to have the name pulled"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aliases(pairs: &[(&str, &str)]) -> Result<Aliases, Error> {
        let pairs = pairs
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
        Aliases::new(&pairs.collect(), "docker.io")
    }

    fn full(text: &str) -> ImageReference {
        let parsed = ImageReference::parse_with_registry(text, "docker.io");
        parsed.unwrap().with_default_tag()
    }

    #[test]
    fn only_the_exact_name_is_an_alias() {
        let aliases = aliases(&[("opensandbox/code-interpreter:v1.1.0", "local/code:1")]).unwrap();
        let target = |name: &str| aliases.target(&full(name)).map(ToString::to_string);
        let known = Some("docker.io/local/code:1".to_owned());
        assert_eq!(target("opensandbox/code-interpreter:v1.1.0"), known);
        assert_eq!(
            target("docker.io/opensandbox/code-interpreter:v1.1.0"),
            known
        );
        for other in [
            "opensandbox/code-interpreter",
            "opensandbox/code-interpreter:v1.1.1",
            "ghcr.io/opensandbox/code-interpreter:v1.1.0",
            "code-interpreter:v1.1.0",
            "local/code:1",
        ] {
            assert_eq!(target(other), None, "{other}");
        }
        assert!(
            aliases
                .refuse_as_name(&full("opensandbox/code-interpreter:v1.1.0"))
                .is_err()
        );
        assert!(aliases.refuse_as_name(&full("local/code:1")).is_ok());
    }

    #[test]
    fn an_alias_is_a_name_of_an_image_and_of_no_other_alias() {
        for wrong in [
            ("a b", "local/x"),
            ("a", "B"),
            ("host", "local/x"),
            ("a", "host"),
            ("a", "a"),
        ] {
            assert!(aliases(&[wrong]).is_err(), "{wrong:?}");
        }
        assert!(aliases(&[("a", "b"), ("b", "c")]).is_err());
    }
}
