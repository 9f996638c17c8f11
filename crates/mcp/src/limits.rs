//! What an agent may do, decided by whoever starts the server. Every limit is held before a
//! request is sent, and what is asked for beyond one is refused with the limit in the message, so
//! that a model can ask for less.

use std::collections::BTreeMap;
use std::path::Path;

use opensandbox::wire::network_policy::{NetworkPolicy, PolicyMode};
use opensandbox::wire::quantity::Quantity;
use opensandbox::wire::sandbox::{CreateSandboxRequest, EXTENSION_POOL_REF};
use serde::Deserialize;

/// The limits; the default has none.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Limits {
    /// Only images that match one of these; none is any.
    pub(crate) allow_image: Vec<String>,
    /// At most this much of each resource.
    pub(crate) max_resource: BTreeMap<String, String>,
    /// Seconds a sandbox lives at most.
    pub(crate) max_lifetime: Option<u64>,
    /// Sandboxes at the same time.
    pub(crate) max_sandboxes: Option<usize>,
    /// Nothing outside can be reached.
    pub(crate) no_network: bool,
    /// Nothing is mounted.
    pub(crate) no_volumes: bool,
    /// Only what was made through this server can be used.
    pub(crate) own_sandboxes_only: bool,
}

/// Why limits cannot be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LimitsError {
    #[error("the limits in {path} cannot be read")]
    File {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the limits in {path} are not usable: {message}")]
    Syntax { path: String, message: String },
    #[error("--max-resource {0:?} is not NAME=AMOUNT, as cpu=2 or memory=4Gi")]
    Resource(String),
}

impl Limits {
    pub(crate) fn from_file(path: &Path) -> Result<Self, LimitsError> {
        let shown = || path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| LimitsError::File {
            path: shown(),
            source,
        })?;
        toml::from_str(&text).map_err(|error| LimitsError::Syntax {
            path: shown(),
            message: error.to_string(),
        })
    }

    pub(crate) fn add_resource(&mut self, given: &str) -> Result<(), LimitsError> {
        let (name, amount) = given
            .split_once('=')
            .ok_or_else(|| LimitsError::Resource(given.to_owned()))?;
        self.max_resource.insert(name.to_owned(), amount.to_owned());
        Ok(())
    }

    /// That every amount is one: a limit that cannot be read must not be taken for none.
    pub(crate) fn check(&self) -> Result<(), LimitsError> {
        for (name, amount) in &self.max_resource {
            if name.is_empty() || amount.parse::<Quantity>().is_err() {
                return Err(LimitsError::Resource(format!("{name}={amount}")));
            }
        }
        Ok(())
    }

    /// Holds a creation to the limits: refuses what is too much, and sets what was left open.
    pub(crate) fn hold(&self, request: &mut CreateSandboxRequest) -> Result<(), String> {
        self.hold_image(request)?;
        self.hold_resources(request)?;
        if let Some(most) = self.max_lifetime {
            let asked = request
                .timeout
                .and_then(|seconds| u64::try_from(seconds).ok());
            if asked.is_none_or(|asked| asked > most) {
                return Err(too_long(most));
            }
        }
        if self.no_volumes && request.volumes.as_ref().is_some_and(|v| !v.is_empty()) {
            return Err("volumes are not allowed here; leave them out".to_owned());
        }
        if self.no_network {
            let asked = request.network_policy.as_ref().map(NetworkPolicy::mode);
            if asked.is_some_and(|mode| mode != PolicyMode::DenyAll) {
                return Err("sandboxes have no network here; leave network_policy out".to_owned());
            }
            request.network_policy = Some(NetworkPolicy::deny_all());
        }
        Ok(())
    }

    /// Lowers amounts that nobody asked for to what is allowed: a default must not be refused.
    pub(crate) fn lower_resources(
        &self,
        request: &mut CreateSandboxRequest,
        asked: Option<&BTreeMap<String, String>>,
    ) -> Result<(), String> {
        let Some(limits) = &mut request.resource_limits else {
            return Ok(());
        };
        for (name, most) in &self.max_resource {
            let is_asked = asked.is_some_and(|asked| asked.contains_key(name));
            if let (false, Some(amount)) = (is_asked, limits.get_mut(name)) {
                let parse = |text: &str| text.parse::<Quantity>().map_err(|e| e.to_string());
                if parse(amount)? > parse(most)? {
                    amount.clone_from(most);
                }
            }
        }
        Ok(())
    }

    /// The same for a lifetime that nobody asked for.
    pub(crate) fn lower_lifetime(&self, request: &mut CreateSandboxRequest) {
        let most = self.max_lifetime.and_then(|most| i64::try_from(most).ok());
        if let (Some(timeout), Some(most)) = (&mut request.timeout, most) {
            *timeout = (*timeout).min(most);
        }
    }

    /// Holds a renewal to the longest lifetime.
    pub(crate) fn hold_lifetime(&self, seconds: f64) -> Result<(), String> {
        match self.max_lifetime {
            Some(most) if seconds > most as f64 => Err(too_long(most)),
            _ => Ok(()),
        }
    }

    fn hold_image(&self, request: &CreateSandboxRequest) -> Result<(), String> {
        if self.allow_image.is_empty() {
            return Ok(());
        }
        if request.extension(EXTENSION_POOL_REF).is_some() {
            return Err("a pool decides its own image, which is not allowed here".to_owned());
        }
        let Some(image) = &request.image else {
            return Ok(());
        };
        if self
            .allow_image
            .iter()
            .any(|allowed| matches(allowed, &image.uri))
        {
            return Ok(());
        }
        let allowed = self.allow_image.join(", ");
        Err(format!(
            "image {:?} is not allowed here; allowed: {allowed}",
            image.uri
        ))
    }

    fn hold_resources(&self, request: &mut CreateSandboxRequest) -> Result<(), String> {
        for (name, most) in &self.max_resource {
            let limits = request.resource_limits.get_or_insert_default();
            let most_amount: Quantity = most.parse().map_err(|error| format!("{error}"))?;
            match limits.get(name) {
                None => {
                    limits.insert(name.clone(), most.clone());
                }
                Some(asked) => {
                    let amount: Quantity = asked.parse().map_err(|error| format!("{error}"))?;
                    if amount > most_amount {
                        return Err(format!(
                            "{name}={asked} is more than the {most} allowed here"
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

fn too_long(most: u64) -> String {
    format!("a sandbox lives at most {most} seconds here; give a timeout_seconds up to that")
}

/// Whether a pattern, in which `*` stands for anything, is the whole of a text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or("");
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(last) = pieces.pop() else {
        return rest.is_empty();
    };
    for piece in pieces {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use opensandbox::CreateSandbox;

    use super::*;

    fn request() -> CreateSandboxRequest {
        CreateSandbox::from_image("python:3.12").request().clone()
    }

    fn limits(text: &str) -> Limits {
        let limits: Limits = toml::from_str(text).unwrap();
        limits.check().unwrap();
        limits
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, text, is) in [
            ("python:3.12", "python:3.12", true),
            ("python:3.12", "python:3.12-slim", false),
            ("python:*", "python:3.12", true),
            ("*/python:*", "docker.io/library/python:3", true),
            ("*", "", true),
            ("a*a", "a", false),
            ("registry.local/*", "evil/registry.local/x", false),
        ] {
            assert_eq!(matches(pattern, text), is, "{pattern} {text}");
        }
    }

    #[test]
    fn what_is_not_allowed_is_refused() {
        let refused = |text: &str, change: fn(&mut CreateSandboxRequest)| {
            let mut request = request();
            change(&mut request);
            limits(text).hold(&mut request).is_err()
        };
        assert!(refused("allow_image = ['node:*']", |_| {}));
        assert!(refused("allow_image = ['python:*']", |r| {
            r.extensions = Some([("poolRef".to_owned(), "p".to_owned())].into());
        }));
        assert!(refused("max_lifetime = 60", |_| {}));
        assert!(refused("max_lifetime = 3600", |r| r.timeout = None));
        assert!(refused("max_resource = { memory = '1Gi' }", |_| {}));
        assert!(refused("no_volumes = true", |r| r.volumes =
            Some(vec![opensandbox::volume::named("v", "v", "/v")])));
        assert!(refused("no_network = true", |r| r.network_policy =
            Some(NetworkPolicy::allow_all())));
        assert!(!refused(
            "allow_image = ['python:*']\nmax_lifetime = 600",
            |_| {}
        ));
        assert!(limits("max_lifetime = 60").hold_lifetime(61.0).is_err());
    }

    #[test]
    fn what_was_left_open_is_set_to_the_limit() {
        let mut request = request();
        let limits = limits("no_network = true\nmax_resource = { disk = '1Gi', cpu = '2' }");
        limits.hold(&mut request).unwrap();
        let resources = request.resource_limits.unwrap();
        assert_eq!(resources["disk"], "1Gi");
        assert_eq!(resources["cpu"], "1", "less than the limit stays");
        assert_eq!(request.network_policy.unwrap().mode(), PolicyMode::DenyAll);
    }

    #[test]
    fn a_default_is_lowered_and_a_wish_is_not() {
        let limits = limits("max_lifetime = 60\nmax_resource = { memory = '1Gi', cpu = '4' }");
        let mut lowered = request();
        limits.lower_resources(&mut lowered, None).unwrap();
        limits.lower_lifetime(&mut lowered);
        limits.hold(&mut lowered).unwrap();
        assert_eq!(lowered.timeout, Some(60));
        let resources = lowered.resource_limits.unwrap();
        assert_eq!((&*resources["memory"], &*resources["cpu"]), ("1Gi", "1"));
        let mut wished = request();
        let wish = [("memory".to_owned(), "2Gi".to_owned())].into();
        limits.lower_resources(&mut wished, Some(&wish)).unwrap();
        limits.lower_lifetime(&mut wished);
        assert!(limits.hold(&mut wished).is_err());
    }

    #[test]
    fn a_limit_that_cannot_be_read_is_an_error() {
        let mut limits = Limits::default();
        assert!(limits.add_resource("cpu").is_err());
        limits.add_resource("cpu=lots").unwrap();
        assert!(limits.check().is_err());
        assert!(toml::from_str::<Limits>("max_lifetimes = 3").is_err());
    }
}
