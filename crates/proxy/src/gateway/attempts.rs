//! How often signatures of version 1 may be guessed.
//!
//! They have 32 bits. A client may fail a few times a minute for one sandbox, and all clients together a
//! thousand times, so that half of all signatures take four years. Beyond that nothing is verified: a
//! right one would otherwise still be found. Tokens and signatures of version 2 are not held up.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use api::id::SandboxId;
use tokio::time::Instant;

use crate::network_of;

/// Wrong signatures of one client for one sandbox within [`WINDOW`]: enough for a page whose link was cut
/// and which asks for a few files.
const PER_CLIENT_MAX: u32 = 20;

/// Wrong signatures of all clients for one sandbox within [`WINDOW`].
const PER_SANDBOX_MAX: u32 = 1000;

/// How long failures are remembered.
const WINDOW: Duration = Duration::from_secs(60);

/// Failing pairs of client and sandbox that are remembered. Where there are more, the oldest is forgotten;
/// the limit per sandbox holds then.
const REMEMBERED_MAX: usize = 16 * 1024;

/// Memory of failures.
#[derive(Debug, Default)]
pub struct Attempts(Mutex<Failures>);

#[derive(Debug, Default)]
struct Failures {
    of_client: HashMap<(IpAddr, SandboxId), Window>,
    of_sandbox: HashMap<SandboxId, Window>,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    since: Instant,
    count: u32,
}

impl Attempts {
    /// How long a client has to wait before a signature for this sandbox is looked at again.
    pub(super) fn wait(&self, client: IpAddr, id: &SandboxId) -> Option<Duration> {
        let failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.of_sandbox.is_empty() {
            return None;
        }
        let now = Instant::now();
        let of_client = failures.of_client.get(&(network_of(client), id.clone()));
        let of_client = of_client.and_then(|window| window.wait(PER_CLIENT_MAX, now));
        let of_sandbox = failures.of_sandbox.get(id);
        of_client.or_else(|| of_sandbox?.wait(PER_SANDBOX_MAX, now))
    }

    /// Notes a wrong signature.
    pub(super) fn note(&self, client: IpAddr, id: &SandboxId) {
        let now = Instant::now();
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        count(
            &mut failures.of_client,
            (network_of(client), id.clone()),
            now,
        );
        count(&mut failures.of_sandbox, id.clone(), now);
    }
}

impl Window {
    fn wait(&self, max: u32, now: Instant) -> Option<Duration> {
        let left = WINDOW.checked_sub(now - self.since)?;
        (self.count >= max && !left.is_zero()).then_some(left.max(Duration::from_secs(1)))
    }
}

fn count<K: Hash + Eq + Clone>(windows: &mut HashMap<K, Window>, key: K, now: Instant) {
    let is_over = |window: &Window| now - window.since >= WINDOW;
    if !windows.contains_key(&key) && windows.len() >= REMEMBERED_MAX {
        windows.retain(|_, window| !is_over(window));
        let oldest = windows.iter().min_by_key(|(_, window)| window.since);
        let oldest = oldest.map(|(key, _)| key.clone());
        if let Some(oldest) = oldest.filter(|_| windows.len() >= REMEMBERED_MAX) {
            windows.remove(&oldest);
        }
    }
    let new = Window {
        since: now,
        count: 0,
    };
    let window = windows.entry(key).or_insert(new);
    if is_over(window) {
        *window = new;
    }
    window.count += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: usize) -> IpAddr {
        IpAddr::from(u32::try_from(number).unwrap().to_be_bytes())
    }

    #[tokio::test(start_paused = true)]
    async fn guessing_ends_for_the_client_and_then_for_the_sandbox() {
        let attempts = Attempts::default();
        let (id, other): (SandboxId, SandboxId) = ("a".parse().unwrap(), "b".parse().unwrap());
        for _ in 0..PER_CLIENT_MAX {
            assert_eq!(attempts.wait(client(1), &id), None);
            attempts.note(client(1), &id);
        }
        assert_eq!(attempts.wait(client(1), &id), Some(WINDOW));
        assert_eq!(attempts.wait(client(1), &other), None);
        assert_eq!(attempts.wait(client(2), &id), None);
        for number in 0..PER_SANDBOX_MAX as usize {
            attempts.note(client(number + 2), &id);
        }
        assert_eq!(attempts.wait(client(9999), &id), Some(WINDOW));
        assert_eq!(attempts.wait(client(9999), &other), None);
        tokio::time::advance(WINDOW).await;
        assert_eq!(attempts.wait(client(1), &id), None);
    }

    #[tokio::test]
    async fn the_memory_of_failures_is_bounded() {
        let attempts = Attempts::default();
        for number in 0..REMEMBERED_MAX + 10 {
            attempts.note(client(number), &format!("s{number}").parse().unwrap());
        }
        let failures = attempts.0.lock().unwrap();
        assert_eq!(failures.of_client.len(), REMEMBERED_MAX);
        assert_eq!(failures.of_sandbox.len(), REMEMBERED_MAX);
    }
}
