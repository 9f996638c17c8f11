//! Who may use the API: named keys, kept as hashes, compared in constant time, and a brake on
//! guessing, which a right key never feels.
//!
//! Knows no HTTP. Per-sandbox tokens are the proxy's.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::config;

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

/// Who made a request: the name of their key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal(pub Arc<str>);

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

/// The keys, and the memory of failures.
#[derive(Debug)]
pub struct Keys {
    known: RwLock<Vec<Known>>,
    failures: Mutex<HashMap<IpAddr, Failures>>,
}

#[derive(Debug)]
struct Known {
    principal: Principal,
    sha256: [u8; 32],
    /// Bytes of the key, where it is known itself and not only by its hash.
    length: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    since: Instant,
    count: u32,
}

impl Keys {
    /// The keys of a configuration that was checked.
    pub fn of(server: &config::Server) -> Self {
        Self {
            known: RwLock::new(Self::read(server)),
            failures: Mutex::default(),
        }
    }

    fn read(server: &config::Server) -> Vec<Known> {
        let plain = server.api_key.as_ref().map(|key| {
            let length = key.expose_secret().len();
            (config::DEFAULT_KEY_NAME, hash(key), Some(length))
        });
        let named = server.api_keys.0.iter().map(|key| {
            let digest = key.digest().expect("checked when the settings were read");
            (key.name.as_str(), digest, None)
        });
        plain
            .into_iter()
            .chain(named)
            .map(|(name, sha256, length)| Known {
                principal: Principal(name.into()),
                sha256,
                length,
            })
            .collect()
    }

    /// Takes the keys of another configuration instead, from the next request on. Half a file must not open a
    /// server, so the last key is not taken away.
    pub fn replace(&self, server: &config::Server) -> Result<(), LastKeyRemoved> {
        let new = Self::read(server);
        if new.is_empty() && !self.is_open() {
            return Err(LastKeyRemoved);
        }
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    fn known(&self) -> RwLockReadGuard<'_, Vec<Known>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anyone may use the API without a key.
    pub fn is_open(&self) -> bool {
        self.known().is_empty()
    }

    /// Who sent this key from this address. `from` is `None` where addresses mean nothing. A right key is
    /// right whatever else came from the address: there may be many clients behind it.
    pub fn check(&self, key: Option<&str>, from: Option<IpAddr>) -> Result<Principal, Denied> {
        if self.is_open() {
            return Ok(Principal(ANONYMOUS.into()));
        }
        let Some(key) = key else {
            return Err(Denied::Missing);
        };
        if let Some(principal) = self.find(key.as_bytes()) {
            return Ok(principal);
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
        // Most values are ruled out by their length, without a hash.
        let may_be = |known: &Known| known.length.is_none_or(|length| length == value.len());
        let may_be_one = self.known().iter().any(may_be);
        may_be_one && self.find(value).is_some()
    }

    /// Looks at every key, whichever fits, so that the time tells nothing.
    fn find(&self, key: &[u8]) -> Option<Principal> {
        let sent: [u8; 32] = Sha256::digest(key).into();
        let mut found = None;
        let all = self.known();
        for known in all.iter() {
            if daemon::secret::equal(sent, known.sha256) {
                found = Some(&known.principal);
            }
        }
        found.cloned()
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

fn hash(key: &SecretString) -> [u8; 32] {
    Sha256::digest(key.expose_secret().as_bytes()).into()
}

/// A new key and its hash, both as text.
pub fn new_key() -> (String, String) {
    // Two random UUIDs hold 244 random bits: out of reach of guessing.
    let key = format!(
        "osb_{}{}",
        uuid::Uuid::new_v4().simple(),
        uuid::Uuid::new_v4().simple()
    );
    let digest = hex::encode(Sha256::digest(key.as_bytes()));
    (key, digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn keys(plain: Option<&str>, named: &[(&str, &str)]) -> Keys {
        let hashed = named.iter().map(|(name, key)| config::ApiKey {
            name: (*name).to_owned(),
            sha256: hex::encode(Sha256::digest(key.as_bytes())),
        });
        Keys::of(&config::Server {
            api_key: plain.map(|key| key.to_owned().into()),
            api_keys: config::ApiKeys(hashed.collect()),
            ..config::Server::default()
        })
    }

    #[tokio::test]
    async fn names_who_holds_a_key() {
        let keys = keys(Some("a"), &[("ci", "b"), ("dev", "c")]);
        for (key, name) in [("a", "default"), ("b", "ci"), ("c", "dev")] {
            assert_eq!(keys.check(Some(key), None).unwrap().0.as_ref(), name);
        }
        assert_eq!(keys.check(Some("d"), None), Err(Denied::Invalid));
        assert_eq!(keys.check(Some(""), None), Err(Denied::Invalid));
        assert_eq!(keys.check(None, None), Err(Denied::Missing));
    }

    #[tokio::test]
    async fn without_keys_everyone_is_anonymous() {
        assert_eq!(
            keys(None, &[]).check(None, None).unwrap().0.as_ref(),
            ANONYMOUS
        );
    }

    #[tokio::test(start_paused = true)]
    async fn guessing_is_held_up_for_the_address_that_guesses() {
        let keys = keys(Some("right"), &[]);
        for _ in 0..FAILURES_MAX {
            assert_eq!(keys.check(Some("wrong"), Some(HERE)), Err(Denied::Invalid));
        }
        let Err(Denied::Throttled { retry_after }) = keys.check(Some("wrong"), Some(HERE)) else {
            panic!("one more is one too many");
        };
        assert_eq!(retry_after, WINDOW);
        assert!(keys.check(Some("right"), Some(HERE)).is_ok(), "the owner");
        assert_eq!(keys.check(None, Some(HERE)), Err(Denied::Missing));
        assert_eq!(keys.check(Some("wrong"), Some(THERE)), Err(Denied::Invalid));
        tokio::time::advance(WINDOW).await;
        assert_eq!(keys.check(Some("wrong"), Some(HERE)), Err(Denied::Invalid));
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
