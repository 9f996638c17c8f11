//! Attempts to reach what a network policy does not allow, from inside real sandboxes, by root.
//!
//! Each attempt is made twice: in a sandbox with the policy, where it must be stopped, and in one without,
//! where it must succeed. So an attempt that fails for another reason than the policy is noticed. What the
//! policy allows must work all the while.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use api::egress::policy::{EgressPolicy, EgressRule, PolicyAction};
use lifecycle::backend::Backend;

use crate::case::Verdict;
use crate::world::{HOST_IMAGE, Setup, World, starts};

/// What is attempted, as an expression of `bypass.py`.
type Attempt = (&'static str, &'static str);

/// Stopped by the policy, and by nothing else.
const ATTEMPTS: &[Attempt] = &[
    (
        "an address that nobody named",
        "reached(tcp(B, 80, get('b.test')))",
    ),
    (
        "an address with an allowed Host",
        "reached(tcp(B, 80, get('a.test')), 'a.test')",
    ),
    (
        "an address with an allowed name in TLS",
        "tcp(B, 443, hello('a.test'))",
    ),
    ("a server that speaks first at an address", "tcp(B, 2222)"),
    ("a name that no rule allows", "ask('b.test')"),
    ("a name over TCP", "ask('b.test', over_tcp=True)"),
    ("a name asked elsewhere", "ask('b.test', server=FAR)"),
    (
        "a name asked elsewhere over TCP",
        "ask('b.test', server=FAR, over_tcp=True)",
    ),
    ("a name in capitals", "ask('B.TEST')"),
    ("the name above an allowed pattern", "ask('w.test')"),
    ("records without an address", "ask('b.test', kind=16)"),
    (
        "a Host on a shared address",
        "told() and reached(tcp(A, 80, get('b.test')))",
    ),
    (
        "a Host in capitals",
        "told() and reached(tcp(A, 80, get('B.test')))",
    ),
    (
        "a Host with a port",
        "told() and b'REACHED b.test' in tcp(A, 80, get('b.test:80'))",
    ),
    (
        "a Host with a dot at its end",
        "told() and b'REACHED b.test' in tcp(A, 80, get('b.test.'))",
    ),
    (
        "no Host",
        "told() and tcp(A, 80, b'GET / HTTP/1.0\\r\\n\\r\\n')",
    ),
    (
        "two Hosts",
        "told() and b'b.test' in tcp(A, 80, get('a.test', 'Host: b.test'))",
    ),
    (
        "a Host with a space before its colon",
        "told() and b'b.test' in tcp(A, 80, get('', 'Host : b.test'))",
    ),
    (
        "a folded Host",
        "told() and tcp(A, 80, get('a.test', ' b.test'))",
    ),
    (
        "a target with another host",
        "told() and b'http://b.test' in tcp(A, 80, get('a.test', target='http://b.test/'))",
    ),
    (
        "a target with a user",
        "told() and b'b.test' in tcp(A, 80, get('a.test', target='http://a.test@b.test/'))",
    ),
    (
        "a tunnel",
        "told() and tcp(A, 80, get('a.test', method='CONNECT', target='b.test:443'))",
    ),
    (
        "a second request for another host",
        "told() and reached(tcp(A, 80, get('a.test').replace(b'close', b'keep-alive') + get('b.test')))",
    ),
    (
        "a second request after the answer",
        "told() and reached(tcp(A, 80, get('a.test').replace(b'close', b'keep-alive'), get('b.test')))",
    ),
    (
        "an empty line before the request",
        "told() and reached(tcp(A, 80, b'\\r\\n' + get('b.test')))",
    ),
    (
        "HTTP/2 without TLS",
        "told() and tcp(A, 80, b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n')",
    ),
    (
        "another protocol at the port of HTTP",
        "told() and tcp(A, 80, b'hello world\\r\\n\\r\\n')",
    ),
    (
        "another name in TLS on a shared address",
        "told() and tcp(A, 443, hello('b.test'))",
    ),
    (
        "another name in TLS in pieces",
        "told() and tcp(A, 443, hello('b.test', piece=7))",
    ),
    ("no name in TLS", "told() and tcp(A, 443, hello(None))"),
    (
        "a hidden name in TLS",
        "told() and tcp(A, 443, hello('a.test', ech=True))",
    ),
    (
        "an address for a name in TLS",
        "told() and tcp(A, 443, hello('192.0.2.81'))",
    ),
    (
        "another protocol at the port of TLS",
        "told() and tcp(A, 443, b'SSH-2.0-x\\r\\n')",
    ),
    (
        "another Host at another port",
        "told() and reached(tcp(A, 8080, get('b.test')))",
    ),
    (
        "another Host at another port after an empty line",
        "told() and reached(tcp(A, 8080, b'\\r\\n\\r\\n' + get('b.test')))",
    ),
    (
        "another name in TLS at another port",
        "told() and tcp(A, 8443, hello('b.test'))",
    ),
    (
        "a hidden name in TLS at another port",
        "told() and tcp(A, 8443, hello('a.test', ech=True))",
    ),
    (
        "no name in TLS at another port",
        "told() and tcp(A, 8443, hello(None))",
    ),
    (
        "an address without a name at another port",
        "reached(tcp(B, 8080, get('b.test')))",
    ),
    ("DNS over TLS", "tcp(B, 853, hello('b.test'))"),
    ("QUIC", "told() and udp(A, 443)"),
    ("datagrams to an address", "udp(B, 5000)"),
    ("datagrams to an allowed name", "told() and udp(A, 5000)"),
    ("datagrams at the port of DNS", "udp(B, 53)"),
    (
        "bytes that are no question",
        "b'REACHED' in udp(B, 53, bytes(40))",
    ),
    ("an echo request", "ping(FAR)"),
    (
        "a name that leads to the metadata of a cloud",
        "ask('metadata.w.test')",
    ),
    ("a name that leads to the host", "ask('host.w.test')"),
    ("a name that leads to the gate", "ask('gate.w.test')"),
    ("a name that leads to loopback", "ask('loopback.w.test')"),
    (
        "a name that leads to a private network",
        "ask('private.w.test')",
    ),
    (
        "a name that leads to a provider's network",
        "ask('cgnat.w.test')",
    ),
    (
        "a name in TLS that leads to the metadata of a cloud",
        "told() and tcp(A, 443, hello('metadata.w.test'))",
    ),
    (
        "a Host that leads to the host",
        "told() and b'REACHED' in tcp(A, 80, get('host.w.test'))",
    ),
    ("an alias of a denied name", "ask('alias.w.test')"),
    (
        "a Host that is an alias of a denied name",
        "told() and b'REACHED' in tcp(A, 80, get('alias.w.test'))",
    ),
];

/// Stopped although a rule allows the address; that they are stopped without a policy the other cases show.
const NEVER: &[Attempt] = &[
    ("the gate's own port", "tcp('10.88.0.1', 1, b'x')"),
    (
        "the host, though a rule allows its range",
        "tcp('203.0.113.9', 22, b'x')",
    ),
    (
        "metadata, though a rule allows its range",
        "tcp('169.254.169.254', 80, get('x'))",
    ),
    (
        "other sandboxes, though a rule allows their range",
        "tcp('10.88.0.3', 44772, get('x'))",
    ),
    ("anything over IPv6", "over_ipv6('2001:db8::1', 80)"),
    (
        "an address of IPv4 over IPv6",
        "over_ipv6('64:ff9b::c000:252', 80)",
    ),
];

/// Must work with the policy.
const ALLOWED: &[Attempt] = &[
    (
        "an allowed name",
        "ask('a.test') == [A] and ask('A.Test') == [A]",
    ),
    ("a name below an allowed one", "ask('x.w.test') == [A]"),
    (
        "a name asked elsewhere",
        "ask('a.test', server='192.0.2.99') == [A]",
    ),
    ("a name over TCP", "ask('a.test', over_tcp=True) == [A]"),
    (
        "HTTP",
        "told() and reached(tcp(A, 80, get('a.test')), 'a.test')",
    ),
    (
        "TLS",
        "told() and tcp(A, 443, hello('a.test')) == b'REACHED'",
    ),
    (
        "TLS in pieces",
        "told() and tcp(A, 443, hello('x.w.test', piece=5)) == b'REACHED'",
    ),
    (
        "TLS at another port",
        "told() and tcp(A, 8443, hello('a.test')) == b'REACHED'",
    ),
    (
        "HTTP at another port",
        "told() and reached(tcp(A, 8080, get('a.test')), 'a.test')",
    ),
    ("a server that speaks first", "told() and tcp(A, 2222)"),
];

/// Must work where a rule allows the address.
const ALLOWED_BY_ADDRESS: &[Attempt] = &[
    ("an address", "reached(tcp(B, 80, get('b.test')))"),
    (
        "TLS without a name",
        "tcp(B, 443, hello(None)) == b'REACHED'",
    ),
    ("a server that speaks first", "tcp(B, 2222)"),
];

fn policy(rules: &[(PolicyAction, &str)]) -> EgressPolicy {
    let mut policy = EgressPolicy::DENY_ALL;
    for (action, target) in rules {
        policy.rules.push(EgressRule {
            action: *action,
            target: target.parse().expect("a target"),
            ports: Vec::new(),
            protocol: None,
        });
    }
    policy
}

fn by_name() -> EgressPolicy {
    use PolicyAction::{Allow, Deny};
    policy(&[(Deny, "b.test"), (Allow, "a.test"), (Allow, "*.w.test")])
}

/// The internet of the cases, while it is held.
struct Internet(Child);

impl Drop for Internet {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn internet(world: &World) -> Result<Internet, Verdict> {
    if !starts("python3") {
        let why = "its attacks are in Python, and the image that shows the host's programs has no python3";
        return Err(Verdict::NotRun(why.to_owned()));
    }
    Ok(world.inside(world.outside(), || {
        for address in ["192.0.2.81", "192.0.2.82"] {
            crate::played::ip(&format!("addr replace {address}/32 dev lo"));
        }
        let mut child = Command::new("python3")
            .args(["-c", include_str!("../hostile/internet.py")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let mut line = String::new();
        let output = child.stdout.take().expect("it is piped");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("it speaks");
        assert_eq!(line, "ready\n", "the internet of the tests did not come up");
        Internet(child)
    }))
}

/// Whether an attempt reached its goal; `Err` where it could not be made.
async fn attempt(world: &World, network: &EgressPolicy, code: &str) -> Result<bool, String> {
    let setup = Setup {
        image: HOST_IMAGE,
        program: "python3",
        network: network.clone(),
        ..Setup::default()
    };
    let program = include_str!("../hostile/bypass.py");
    let outcome = world.attack(&setup, &["-c", program, code]).await;
    match outcome.exit.code {
        Some(0) => Ok(false),
        Some(1) => Ok(true),
        _ => Err(format!("{:?}: {}", outcome.exit, outcome.output)),
    }
}

async fn all(world: &World, network: &EgressPolicy, list: &[Attempt], expected: bool) -> Verdict {
    let mut verdict = Verdict::Held;
    for (name, code) in list {
        verdict = verdict.and(match attempt(world, network, code).await {
            Ok(reached) if reached == expected => Verdict::Held,
            Ok(true) => Verdict::GotThrough(format!("{name}: it was reached")),
            Ok(false) => Verdict::Unclear(format!(
                "{name}: it was not reached, though nothing forbids it"
            )),
            Err(why) => Verdict::Unclear(format!("{name}: {why}")),
        });
    }
    verdict
}

pub(crate) async fn a_policy_is_not_passed_by(world: &World) -> Verdict {
    let _internet = match internet(world) {
        Ok(internet) => internet,
        Err(verdict) => return verdict,
    };
    all(world, &by_name(), ATTEMPTS, false).await
}

pub(crate) async fn the_attempts_succeed_without_a_policy(world: &World) -> Verdict {
    let _internet = match internet(world) {
        Ok(internet) => internet,
        Err(verdict) => return verdict,
    };
    all(world, &EgressPolicy::ALLOW_ALL, ATTEMPTS, true).await
}

pub(crate) async fn what_nobody_may_reach_no_rule_opens(world: &World) -> Verdict {
    let _internet = match internet(world) {
        Ok(internet) => internet,
        Err(verdict) => return verdict,
    };
    use PolicyAction::Allow;
    let ranges = [
        (Allow, "203.0.113.0/24"),
        (Allow, "169.254.0.0/16"),
        (Allow, "10.0.0.0/8"),
        (Allow, "2001:db8::/32"),
        (Allow, "64:ff9b::/96"),
    ];
    let victim = world.victim().await;
    let verdict = all(world, &policy(&ranges), NEVER, false).await;
    world.delete(&victim).await;
    verdict
}

pub(crate) async fn what_a_policy_allows_works(world: &World) -> Verdict {
    let _internet = match internet(world) {
        Ok(internet) => internet,
        Err(verdict) => return verdict,
    };
    let by_address = policy(&[(PolicyAction::Allow, "192.0.2.82")]);
    let verdict = all(world, &by_name(), ALLOWED, true).await;
    verdict.and(all(world, &by_address, ALLOWED_BY_ADDRESS, true).await)
}

/// Connections that a new policy does not allow end when the change is acknowledged, and the others go on.
/// The sandbox says by a third connection that it has both.
pub(crate) async fn a_change_cuts_what_it_does_not_allow(world: &World) -> Verdict {
    let _internet = match internet(world) {
        Ok(internet) => internet,
        Err(verdict) => return verdict,
    };
    let meeting = world.inside(world.outside(), || {
        std::net::TcpListener::bind(("192.0.2.82", 2_300)).expect("free port")
    });
    meeting.set_nonblocking(true).expect("a mode can be set");
    let meeting = tokio::net::TcpListener::from_std(meeting).expect("within a runtime");
    let id = world.new_id();
    let setup = Setup {
        image: HOST_IMAGE,
        program: "python3",
        network: policy(&[
            (PolicyAction::Allow, "a.test"),
            (PolicyAction::Allow, "192.0.2.82"),
        ]),
        ..Setup::default()
    };
    let words = ["-c", include_str!("../hostile/bypass.py"), "not is_cut()"];
    let attack = world.attack_as(&id, &setup, &words);
    let change = async {
        let (_stream, _) = meeting.accept().await.expect("the sandbox comes");
        let narrowed = policy(&[(PolicyAction::Allow, "192.0.2.82")]);
        world.backend.set_network_policy(&id, &narrowed).await
    };
    let both = async { tokio::join!(attack, change) };
    let outcome = tokio::time::timeout(crate::world::DEADLINE, both).await;
    world.delete(&id).await;
    match outcome {
        Ok((outcome, Ok(()))) => outcome.verdict(),
        Ok((_, Err(error))) => Verdict::Unclear(format!("the change says {error:?}")),
        Err(_) => Verdict::Unclear("the sandbox did not come to the meeting".to_owned()),
    }
}

/// A sandbox that was made without rules, or without a network, is held to those that it gets.
pub(crate) async fn rules_that_come_later_hold(world: &World) -> Verdict {
    let _internet = match internet(world) {
        Ok(internet) => internet,
        Err(verdict) => return verdict,
    };
    let meeting = world.inside(world.outside(), || {
        std::net::TcpListener::bind(("192.0.2.82", 2_300)).expect("free port")
    });
    meeting.set_nonblocking(true).expect("a mode can be set");
    let meeting = tokio::net::TcpListener::from_std(meeting).expect("within a runtime");
    let mut verdict = Verdict::Held;
    for (first, attempt) in [
        (EgressPolicy::ALLOW_ALL, "later(True)"),
        (EgressPolicy::DENY_ALL, "later(False)"),
    ] {
        let id = world.new_id();
        let is_open = first == EgressPolicy::ALLOW_ALL;
        let setup = Setup {
            image: HOST_IMAGE,
            program: "python3",
            network: first,
            ..Setup::default()
        };
        let change = async {
            let _stream = match is_open {
                true => Some(meeting.accept().await.expect("the sandbox comes")),
                false => None,
            };
            let changed = world.backend.set_network_policy(&id, &by_name()).await;
            changed.expect("rules can come later");
        };
        let words = ["-c", include_str!("../hostile/bypass.py"), attempt];
        let outcome = world.attack_beside(&id, &setup, &words, change);
        let outcome = tokio::time::timeout(crate::world::DEADLINE, outcome).await;
        world.delete(&id).await;
        verdict = verdict.and(match outcome {
            Ok(outcome) => outcome.verdict(),
            Err(_) => Verdict::Unclear(format!("{attempt} did not end")),
        });
    }
    verdict
}

/// A gate that is killed takes its connections along and lets nothing pass; the server starts another, and a
/// sandbox that was there goes on with it.
pub(crate) async fn nothing_passes_without_a_gate(world: &World) -> Verdict {
    let _internet = match internet(world) {
        Ok(internet) => internet,
        Err(verdict) => return verdict,
    };
    let gates = world.gates();
    let [gate] = gates[..] else {
        return Verdict::Unclear(format!("there are {} gates", gates.len()));
    };
    rustix::process::kill_process(gate, rustix::process::Signal::KILL).expect("it is ours");
    // What is asked of the gate now waits for the next one.
    all(world, &by_name(), &ALLOWED[..5], true)
        .await
        .and(match world.gates()[..] {
            [other] if other != gate => Verdict::Held,
            ref found => Verdict::Unclear(format!("the gates are {found:?}")),
        })
}
