//! One sandbox as the gate knows it: its policy, the names it has asked for, and the connections it has.
//!
//! A change of policy holds when [`Sandbox::replace`] returns: what is asked from then on is judged by the
//! new one, and the connections that it does not allow have been told to end.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use api::egress::policy::PolicyAction;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::judge::{Judge, Port};

/// Questions for names that one sandbox may have under way, so that one that floods leaves room for others;
/// a resolver library sends two at a time.
const QUESTIONS_MAX: usize = 128;
/// Connections of one sandbox. A crawler with a thousand still fits; each costs the gate two descriptors.
pub(crate) const CONNECTIONS_MAX: usize = 2_048;
/// Addresses that it is remembered for which name they were told.
const REMEMBERED_MAX: usize = 4_096;
/// How much longer than the answer says an address is remembered: a client may connect at the last moment.
const REMEMBERED_GRACE: Duration = Duration::from_secs(60);

/// How long after the host was told of an address it is told again.
const OPEN_AGAIN: Duration = Duration::from_secs(3600);

/// A sandbox with a policy.
pub(crate) struct Sandbox {
    pub(crate) id: String,
    pub(crate) address: IpAddr,
    judge: RwLock<Arc<Judge>>,
    told: Mutex<HashMap<IpAddr, Told>>,
    flows: Mutex<Flows>,
    questions: Arc<Semaphore>,
    connections: Arc<Semaphore>,
}

/// An address that the sandbox was told.
struct Told {
    /// For these names, until then.
    names: Vec<(String, Instant)>,
    /// When the host was told of it.
    opened: Instant,
}

#[derive(Default)]
struct Flows {
    next: u64,
    open: HashMap<u64, (Claim, CancellationToken)>,
}

/// By what right a connection exists: as long as the policy allows this, it goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The name that it is to, where it is known.
    pub(crate) name: Option<String>,
    /// The address that the sandbox connected to.
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    /// What is said on it is not read, so that nobody knows whether it is to a name that is denied.
    pub(crate) is_unread: bool,
}

impl Claim {
    pub(crate) fn holds(&self, judge: &Judge) -> bool {
        let port = Port::Tcp(self.port);
        match (judge.address(self.address, port), &self.name) {
            (Some(verdict), _) => verdict.is_allowed(),
            (None, Some(name)) => judge.name(name, port).is_allowed(),
            (None, None) => {
                judge.default_action() == PolicyAction::Allow
                    && !(self.is_unread && judge.has_denied_names())
            }
        }
    }
}

/// A connection that a sandbox has; gone when it is dropped.
pub(crate) struct Flow {
    sandbox: Arc<Sandbox>,
    number: u64,
    /// The policy no longer allows it.
    pub(crate) cut: CancellationToken,
}

impl Sandbox {
    pub(crate) fn new(id: String, address: IpAddr, judge: Judge) -> Self {
        Self {
            id,
            address,
            judge: RwLock::new(Arc::new(judge)),
            told: Mutex::default(),
            flows: Mutex::default(),
            questions: Arc::new(Semaphore::new(QUESTIONS_MAX)),
            connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        }
    }

    /// The policy that holds now.
    pub(crate) fn judge(&self) -> Arc<Judge> {
        let judge = self.judge.read().unwrap_or_else(PoisonError::into_inner);
        judge.clone()
    }

    /// Judges by another policy from now on, and ends what that does not allow.
    pub(crate) fn replace(&self, judge: Judge) {
        let judge = Arc::new(judge);
        *self.judge.write().unwrap_or_else(PoisonError::into_inner) = judge.clone();
        for (claim, cut) in self.flows().open.values() {
            if !claim.holds(&judge) {
                cut.cancel();
            }
        }
    }

    /// Ends every connection: the sandbox is gone.
    pub(crate) fn end(&self) {
        self.flows().open.values().for_each(|(_, cut)| cut.cancel());
    }

    /// Leave to ask for a name.
    pub(crate) fn question(&self) -> Option<OwnedSemaphorePermit> {
        self.questions.clone().try_acquire_owned().ok()
    }

    /// Leave to connect.
    pub(crate) fn connection(&self) -> Option<OwnedSemaphorePermit> {
        self.connections.clone().try_acquire_owned().ok()
    }

    /// Those of the addresses that the host has to be told of: for the first time, and again. Refuses more
    /// than can be remembered.
    pub(crate) fn untold(&self, addresses: &[IpAddr]) -> io::Result<(Vec<IpAddr>, Vec<IpAddr>)> {
        let now = Instant::now();
        let mut told = self.told();
        if told.len() + addresses.len() > REMEMBERED_MAX {
            told.retain(|_, told| told.names.iter().any(|(_, until)| *until > now));
        }
        let is_new = |address: &&IpAddr| !told.contains_key(*address);
        let new: Vec<IpAddr> = addresses.iter().filter(is_new).copied().collect();
        if told.len() + new.len() > REMEMBERED_MAX {
            let problem = format!("more than {REMEMBERED_MAX} addresses at once");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, problem));
        }
        let is_old = |address: &&IpAddr| {
            let told = told.get(*address);
            told.is_some_and(|told| now.duration_since(told.opened) > OPEN_AGAIN)
        };
        let old = addresses.iter().filter(is_old).copied().collect();
        Ok((new, old))
    }

    /// Remembers for which name addresses were told.
    pub(crate) fn remember(&self, addresses: &[IpAddr], name: &str, ttl: Duration) {
        self.remember_at(addresses, name, ttl, Instant::now());
    }

    fn remember_at(&self, addresses: &[IpAddr], name: &str, ttl: Duration, now: Instant) {
        let until = now + ttl + REMEMBERED_GRACE;
        let mut all = self.told();
        for address in addresses {
            let told = all.entry(*address).or_insert_with(|| Told {
                names: Vec::new(),
                opened: now,
            });
            if now.duration_since(told.opened) > OPEN_AGAIN {
                told.opened = now;
            }
            told.names
                .retain(|(other, until)| other != name && *until > now);
            told.names.push((name.to_owned(), until));
        }
    }

    /// The names that an address was told for.
    pub(crate) fn names_of(&self, address: IpAddr) -> Vec<String> {
        self.names_at(address, Instant::now())
    }

    fn names_at(&self, address: IpAddr, now: Instant) -> Vec<String> {
        let all = self.told();
        let names = all.get(&address).into_iter().flat_map(|told| &told.names);
        names
            .filter(|(_, until)| *until > now)
            .map(|(name, _)| name.clone())
            .collect()
    }

    fn told(&self) -> MutexGuard<'_, HashMap<IpAddr, Told>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a connection. Noted first and judged then: a policy that changes in between is seen by one of
    /// the two.
    pub(crate) fn begin(self: &Arc<Self>, claim: &Claim) -> Option<Flow> {
        let cut = CancellationToken::new();
        let number = {
            let mut flows = self.flows();
            flows.next += 1;
            let number = flows.next;
            flows.open.insert(number, (claim.clone(), cut.clone()));
            number
        };
        let flow = Flow {
            sandbox: self.clone(),
            number,
            cut,
        };
        claim.holds(&self.judge()).then_some(flow)
    }

    fn flows(&self) -> MutexGuard<'_, Flows> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flow {
    /// The connection turned out to be to this name; whether that is allowed.
    pub(crate) fn is_to(&self, name: &str) -> bool {
        self.now(|claim| claim.name = Some(name.to_owned()))
    }

    /// The connection was made to this address; whether that is allowed.
    pub(crate) fn is_at(&self, address: IpAddr) -> bool {
        self.now(|claim| claim.address = address)
    }

    fn now(&self, change: impl FnOnce(&mut Claim)) -> bool {
        let claim = {
            let mut flows = self.sandbox.flows();
            let Some((claim, _)) = flows.open.get_mut(&self.number) else {
                return false;
            };
            change(claim);
            claim.clone()
        };
        claim.holds(&self.sandbox.judge())
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.sandbox.flows().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use api::egress::policy::{EgressPolicy, EgressRule};

    use super::*;
    use crate::judge::Always;

    const OWN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 88, 0, 2));

    fn allowing(targets: &[&str]) -> Judge {
        let mut policy = EgressPolicy::DENY_ALL;
        for target in targets {
            policy.rules.push(EgressRule {
                action: PolicyAction::Allow,
                target: target.parse().unwrap(),
                ports: Vec::new(),
                protocol: None,
            });
        }
        Judge::new(&Always::default(), &policy)
    }

    fn claim(name: Option<&str>) -> Claim {
        Claim {
            name: name.map(str::to_owned),
            address: "192.0.2.1".parse().unwrap(),
            port: 443,
            is_unread: false,
        }
    }

    #[test]
    fn a_change_ends_what_it_does_not_allow_and_nothing_else() {
        let sandbox = Arc::new(Sandbox::new(
            "s".to_owned(),
            OWN,
            allowing(&["a.example", "b.example"]),
        ));
        let a = sandbox.begin(&claim(Some("a.example"))).unwrap();
        let b = sandbox.begin(&claim(Some("b.example"))).unwrap();
        assert!(sandbox.begin(&claim(Some("c.example"))).is_none());
        assert!(
            sandbox.begin(&claim(None)).is_none(),
            "an address that no rule is about"
        );
        sandbox.replace(allowing(&["b.example"]));
        assert!(a.cut.is_cancelled() && !b.cut.is_cancelled());
        sandbox.replace(allowing(&["192.0.2.0/24"]));
        assert!(!b.cut.is_cancelled(), "its address is allowed");
        sandbox.end();
        assert!(b.cut.is_cancelled());
        drop((a, b));
        assert!(sandbox.flows().open.is_empty());
    }

    #[test]
    fn a_change_that_denies_a_name_ends_what_was_never_read() {
        let open = Judge::new(&Always::default(), &EgressPolicy::ALLOW_ALL);
        let mut denying = EgressPolicy::ALLOW_ALL;
        denying.rules.push(EgressRule {
            action: PolicyAction::Deny,
            target: "b.example".parse().unwrap(),
            ports: Vec::new(),
            protocol: None,
        });
        let sandbox = Arc::new(Sandbox::new("s".to_owned(), OWN, open));
        let unread = Claim {
            is_unread: true,
            ..claim(None)
        };
        let flow = sandbox.begin(&unread).unwrap();
        sandbox.replace(Judge::new(&Always::default(), &denying));
        assert!(flow.cut.is_cancelled());
    }

    #[test]
    fn what_was_told_is_forgotten_after_its_time() {
        let sandbox = Sandbox::new("s".to_owned(), OWN, allowing(&[]));
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        sandbox.remember_at(&[address], "a.example", 10 * second, now);
        sandbox.remember_at(&[address], "b.example", 100 * second, now);
        assert_eq!(sandbox.names_at(address, now), ["a.example", "b.example"]);
        assert_eq!(sandbox.names_at(address, now + 71 * second), ["b.example"]);
    }
}
