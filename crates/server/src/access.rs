//! Who may use the API: the keys of the configuration and those that the control plane keeps, found by their
//! hashes, and a brake on guessing, which a right key never feels.
//!
//! Knows no HTTP. Per-sandbox tokens are the proxy's.

pub mod tenants_file;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use lifecycle::{Caller, GivenKey, KEY_LENGTH, KeyIndex, Role, Tenant};
use secrecy::ExposeSecret as _;
use tokio::time::Instant;

use crate::config::{self, Config};

/// Who acts when no key is configured.
pub const ANONYMOUS: &str = "anonymous";

/// Wrong keys from one address within [`WINDOW`] before the answers to more are held back. Generous to a
/// misconfigured client that starts several programs.
const FAILURES_MAX: u32 = 20;

/// How long failures are remembered, and so how long answers to wrong keys are held back at most.
const WINDOW: Duration = Duration::from_secs(60);

/// How long each of those answers is held back. A connection then tries one key a second.
pub const WRONG_KEY_DELAY: Duration = Duration::from_secs(1);

/// Addresses remembered at once. When it is full the oldest window is forgotten: an attacker with
/// this many addresses is not held up by counting anyway.
const ADDRESSES_MAX: usize = 4096;

/// Why a request was turned away.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// No key was sent.
    #[error("this server needs an API key; send it in the header OPEN-SANDBOX-API-KEY")]
    Missing,
    /// The key is not known.
    #[error("the API key is not valid")]
    Invalid,
    /// Too many wrong keys came from this address.
    #[error("too many wrong API keys from this address; wait {} s", retry_after.as_secs())]
    Throttled {
        /// When to try again.
        retry_after: Duration,
    },
}

/// A configuration would open a server that has keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the configuration has no API key any more, and a server with keys does not open while it runs; restart it for that"
)]
pub struct LastKeyRemoved;

/// What a configuration says about who may use the API.
pub struct Given {
    /// Its keys.
    pub keys: Vec<GivenKey>,
    /// Its tenants.
    pub tenants: Vec<Tenant>,
    /// Whether a key is asked for even where it names none.
    pub is_closed: bool,
    /// Bytes of the keys that are known themselves and not only by their hash.
    lengths: Vec<usize>,
    /// Whether there are others.
    has_hashed: bool,
}

impl Given {
    /// The keys and tenants of a configuration that was checked.
    pub fn read(config: &Config) -> Result<Given, tenants_file::Error> {
        let mut given = Given::of(&config.server);
        if let Some(path) = config.tenants.file() {
            let file = tenants_file::read(path)?;
            given.lengths.extend(file.lengths);
            given.keys.extend(file.keys);
            given.tenants = file.tenants;
            // A file without tenants is a server that nobody may use yet.
            given.is_closed = true;
        }
        Ok(given)
    }

    /// The keys of the server's own section, which are administrators'.
    pub fn of(server: &config::Server) -> Given {
        let plain = server.api_key.as_ref();
        let lengths = plain.map(|key| key.expose_secret().len());
        let plain = plain.map(|key| {
            let key = key.expose_secret().as_bytes();
            (config::DEFAULT_KEY_NAME, lifecycle::hash(key))
        });
        let named = server.api_keys.0.iter().map(|key| {
            let digest = key.digest().expect("checked when the settings were read");
            (key.name.as_str(), digest)
        });
        let keys = plain.into_iter().chain(named);
        let keys = keys.map(|(name, hash)| GivenKey {
            name: name.to_owned(),
            tenant: Tenant::default(),
            role: Role::Admin,
            hash,
        });
        Given {
            keys: keys.collect(),
            tenants: Vec::new(),
            is_closed: false,
            lengths: lengths.into_iter().collect(),
            has_hashed: !server.api_keys.0.is_empty(),
        }
    }

    fn has_keys(&self) -> bool {
        !self.keys.is_empty() || self.is_closed
    }
}

/// The keys, and the memory of failures.
pub struct Keys {
    index: Arc<KeyIndex>,
    lengths: RwLock<Lengths>,
    failures: Mutex<HashMap<IpAddr, Failures>>,
}

/// What is known of keys without a hash.
#[derive(Debug, Default)]
struct Lengths {
    known: Vec<usize>,
    has_hashed: bool,
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    since: Instant,
    count: u32,
}

impl Keys {
    /// The keys of an index, which has those of this configuration already.
    pub fn of(given: &Given, index: Arc<KeyIndex>) -> Self {
        let keys = Self {
            index,
            lengths: RwLock::default(),
            failures: Mutex::default(),
        };
        keys.note_lengths(given);
        keys
    }

    fn note_lengths(&self, given: &Given) {
        let mut lengths = self.lengths.write().unwrap_or_else(PoisonError::into_inner);
        lengths.known = given.lengths.clone();
        lengths.known.push(KEY_LENGTH);
        lengths.has_hashed = given.has_hashed;
    }

    /// Whether the keys of another configuration may be taken over. Half a file must not open a server, so
    /// the last key is not taken away.
    pub fn replace(&self, given: &Given) -> Result<(), LastKeyRemoved> {
        if !given.has_keys() && !self.is_open() && !self.index.has_stored() {
            return Err(LastKeyRemoved);
        }
        self.note_lengths(given);
        Ok(())
    }

    /// Whether anyone may use the API without a key.
    pub fn is_open(&self) -> bool {
        self.index.is_open()
    }

    /// Who sent this key from this address. `from` is `None` where addresses mean nothing. A right key is
    /// right whatever else came from the address: there may be many clients behind it.
    pub fn check(&self, key: Option<&str>, from: Option<IpAddr>) -> Result<Caller, Denied> {
        if self.is_open() {
            return Ok(Caller::admin(ANONYMOUS));
        }
        let Some(key) = key else {
            return Err(Denied::Missing);
        };
        if let Some(caller) = self.find(key.as_bytes()) {
            return Ok(caller);
        }
        let Some(from) = from.map(proxy::network_of) else {
            return Err(Denied::Invalid);
        };
        let now = Instant::now();
        let denied = match self.must_wait(from, now) {
            Some(retry_after) => Denied::Throttled { retry_after },
            None => Denied::Invalid,
        };
        self.note_failure(from, now);
        Err(denied)
    }

    /// Whether this is a key. For what is no attempt to use the API: nothing is remembered of it.
    pub fn knows(&self, value: &[u8]) -> bool {
        self.find(value).is_some()
    }

    /// Who holds this key. Most values are ruled out by their length, without a hash.
    pub fn find(&self, key: &[u8]) -> Option<Caller> {
        let lengths = self.lengths.read().unwrap_or_else(PoisonError::into_inner);
        if !lengths.has_hashed && !lengths.known.contains(&key.len()) {
            return None;
        }
        drop(lengths);
        self.index
            .identify(&lifecycle::hash(key), jiff::Timestamp::now())
    }

    fn must_wait(&self, from: IpAddr, now: Instant) -> Option<Duration> {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = failures.get(&from)?;
        let left = WINDOW
            .checked_sub(now - entry.since)
            .filter(|left| !left.is_zero())?;
        (entry.count >= FAILURES_MAX).then_some(left.max(Duration::from_secs(1)))
    }

    fn note_failure(&self, from: IpAddr, now: Instant) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if !failures.contains_key(&from) && failures.len() >= ADDRESSES_MAX {
            failures.retain(|_, entry| now - entry.since < WINDOW);
            let oldest = failures
                .iter()
                .min_by_key(|(_, entry)| entry.since)
                .map(|(ip, _)| *ip);
            if let Some(oldest) = oldest.filter(|_| failures.len() >= ADDRESSES_MAX) {
                failures.remove(&oldest);
            }
        }
        let entry = failures.entry(from).or_insert(Failures {
            since: now,
            count: 0,
        });
        if now - entry.since >= WINDOW {
            *entry = Failures {
                since: now,
                count: 0,
            };
        }
        entry.count += 1;
    }
}

/// A new key and its hash, both as text.
pub fn new_key() -> (String, String) {
    let (key, hash) = lifecycle::new_api_key();
    (key.expose_secret().to_owned(), hex::encode(hash))
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn keys(plain: Option<&str>, named: &[(&str, &str)]) -> Keys {
        let hashed = named.iter().map(|(name, key)| config::ApiKey {
            name: (*name).to_owned(),
            sha256: hex::encode(Sha256::digest(key.as_bytes())),
        });
        let given = Given::of(&config::Server {
            api_key: plain.map(|key| key.to_owned().into()),
            api_keys: config::ApiKeys(hashed.collect()),
            ..config::Server::default()
        });
        let index = Arc::new(KeyIndex::default());
        index.set_given(given.keys.clone(), given.is_closed);
        Keys::of(&given, index)
    }

    #[tokio::test]
    async fn names_who_holds_a_key() {
        let keys = keys(Some("a"), &[("ci", "b"), ("dev", "c")]);
        for (key, name) in [("a", "default"), ("b", "ci"), ("c", "dev")] {
            assert_eq!(keys.check(Some(key), None).unwrap().name.as_ref(), name);
        }
        assert_eq!(keys.check(Some("d"), None).unwrap_err(), Denied::Invalid);
        assert_eq!(keys.check(Some(""), None).unwrap_err(), Denied::Invalid);
        assert_eq!(keys.check(None, None).unwrap_err(), Denied::Missing);
    }

    #[tokio::test]
    async fn without_keys_everyone_is_anonymous() {
        assert_eq!(
            keys(None, &[]).check(None, None).unwrap().name.as_ref(),
            ANONYMOUS
        );
    }

    #[tokio::test(start_paused = true)]
    async fn guessing_is_held_up_for_the_address_that_guesses() {
        let keys = keys(Some("right"), &[]);
        for _ in 0..FAILURES_MAX {
            assert_eq!(
                keys.check(Some("wrong"), Some(HERE)).unwrap_err(),
                Denied::Invalid
            );
        }
        let Err(Denied::Throttled { retry_after }) = keys.check(Some("wrong"), Some(HERE)) else {
            panic!("one more is one too many");
        };
        assert_eq!(retry_after, WINDOW);
        assert!(keys.check(Some("right"), Some(HERE)).is_ok(), "the owner");
        assert_eq!(keys.check(None, Some(HERE)).unwrap_err(), Denied::Missing);
        assert_eq!(
            keys.check(Some("wrong"), Some(THERE)).unwrap_err(),
            Denied::Invalid
        );
        tokio::time::advance(WINDOW).await;
        assert_eq!(
            keys.check(Some("wrong"), Some(HERE)).unwrap_err(),
            Denied::Invalid
        );
    }

    #[test]
    fn a_key_is_known_by_its_value_and_leaves_no_trace() {
        let keys = keys(Some("plain"), &[("ci", "named key")]);
        assert!(keys.knows(b"plain") && keys.knows(b"named key"));
        for other in ["", "plaim", "Plain", "named", "named key "] {
            assert!(!keys.knows(other.as_bytes()), "{other}");
        }
        assert!(keys.failures.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn the_memory_of_failures_is_bounded() {
        let keys = keys(Some("right"), &[]);
        for n in 0..ADDRESSES_MAX + 10 {
            let n = u32::try_from(n).unwrap();
            let _ = keys.check(Some("wrong"), Some(IpAddr::from(n.to_be_bytes())));
        }
        assert_eq!(keys.failures.lock().unwrap().len(), ADDRESSES_MAX);
    }
}
