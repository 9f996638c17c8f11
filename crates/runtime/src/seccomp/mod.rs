//! The seccomp filter of every sandbox, compiled from `profile.json`.
//!
//! The program is a binary search over ranges of call numbers. The kernel runs a new filter once
//! for each call number when it is installed, to learn which calls it always allows; a linear
//! list of some 300 comparisons costs 0.45 ms there, a search of depth seven about 0.07 ms.
//!
//! Arguments are compared by their low 32 bits only, because that is all the kernel itself reads
//! of them: a comparison of 64 bits could be passed by setting a high bit that the kernel then
//! ignores.
//!
//! Some sockets are made by the spawner, which the filter's notifications go to: those whose memory
//! nobody is charged for. A sandbox can add filters and cannot take the answer upon itself: the
//! kernel allows one listener in a chain of filters (`has_duplicate_listener`, EBUSY).
//!
//! Not here: who installs it and when; that is the last step of [`crate::init`].

mod numbers;

use std::collections::BTreeMap;

use libc::sock_filter;
use serde::Deserialize;

use crate::protection::Protection;
use numbers::Number;

/// Compiles the profile. The profile is part of the program, so a mistake in it is a mistake in
/// the program, found by the first test.
pub(crate) fn compile() -> Vec<sock_filter> {
    if !Protection::Seccomp.is_on() {
        return vec![answer(&Verdict::Allow)];
    }
    let profile: Profile =
        serde_json::from_str(include_str!("profile.json")).expect("the profile is valid JSON");
    program(&segments(&profile))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    #[expect(dead_code, reason = "for the reader of the profile")]
    comment: String,
    newest_reviewed: String,
    #[cfg_attr(not(test), expect(dead_code, reason = "for the reader, and a test"))]
    allowed_since_5_10: Vec<AllowedCall>,
    deny: Vec<Deny>,
    check: Vec<Check>,
    netlink: Netlink,
    counted: Counted,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Deny {
    #[expect(dead_code, reason = "for the reader of the profile")]
    reason: String,
    errno: String,
    calls: Vec<String>,
}

/// A call that Linux got after 5.10 and that sandboxes may use.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(test), expect(dead_code, reason = "for the reader, and a test"))]
struct AllowedCall {
    call: String,
    linux: String,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Check {
    #[expect(dead_code, reason = "for the reader of the profile")]
    reason: String,
    call: String,
    /// The check is made only of calls with this.
    when: Option<When>,
    argument: u32,
    /// Every value but zero, all 64 bits of it.
    #[serde(default)]
    deny_nonzero: bool,
    #[serde(default)]
    deny_bits: Vec<String>,
    #[serde(default)]
    deny: Vec<String>,
    #[serde(default)]
    allow: Vec<String>,
    errno: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct When {
    argument: u32,
    is: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Netlink {
    #[expect(dead_code, reason = "for the reader of the profile")]
    reason: String,
    allow: Vec<String>,
    errno: String,
}

/// Sockets besides netlink that the spawner makes, because one sandbox may have only few.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Counted {
    #[expect(dead_code, reason = "for the reader of the profile")]
    reason: String,
    families: Vec<String>,
    protocols: Vec<String>,
}

/// What happens to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Allow,
    /// The spawner answers it.
    Notify,
    Errno(u16),
    /// These tests in order; the first that is decided wins, and none decided is `otherwise`.
    Tests(Vec<Test>, Box<Verdict>),
}

/// One look at an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    /// Any of these bits set.
    Bits {
        argument: u32,
        bits: u32,
        then: Verdict,
    },
    /// Any bit set of the upper half.
    HighBits { argument: u32, then: Verdict },
    /// Equal to one of these.
    OneOf {
        argument: u32,
        values: Vec<u32>,
        then: Verdict,
    },
}

/// Calls from `first` on, up to the next segment, share a verdict.
struct Segment {
    first: u32,
    verdict: Verdict,
}

fn segments(profile: &Profile) -> Vec<Segment> {
    let mut special: BTreeMap<u32, Verdict> = BTreeMap::new();
    for deny in &profile.deny {
        for name in &deny.calls {
            if let Number::Is(number) = call(name) {
                special.insert(number, Verdict::Errno(errno(&deny.errno)));
            }
        }
    }
    // A call may have several checks: what the first lets through meets the next.
    for check in profile.check.iter().rev() {
        if let Number::Is(number) = call(&check.call) {
            let next = special.remove(&number).unwrap_or(Verdict::Allow);
            special.insert(number, check_verdict(check, profile, next));
        }
    }
    let Number::Is(newest) = call(&profile.newest_reviewed) else {
        unreachable!("the newest call has the same number everywhere");
    };
    let mut segments: Vec<Segment> = Vec::new();
    for first in 0..=newest + 1 {
        let verdict = if first > newest {
            Verdict::Errno(errno("ENOSYS"))
        } else {
            special.remove(&first).unwrap_or(Verdict::Allow)
        };
        if segments.last().is_none_or(|last| last.verdict != verdict) {
            segments.push(Segment { first, verdict });
        }
    }
    segments
}

fn check_verdict(check: &Check, profile: &Profile, next: Verdict) -> Verdict {
    let judged = check_values(check, profile, next.clone());
    match &check.when {
        None => judged,
        Some(when) => {
            let test = Test::OneOf {
                argument: when.argument,
                values: values(&when.is),
                then: judged,
            };
            Verdict::Tests(vec![test], Box::new(next))
        }
    }
}

fn check_values(check: &Check, profile: &Profile, next: Verdict) -> Verdict {
    let argument = check.argument;
    let refuse = Verdict::Errno(errno(&check.errno));
    if check.deny_nonzero {
        let low = Test::Bits {
            argument,
            bits: u32::MAX,
            then: refuse.clone(),
        };
        let high = Test::HighBits {
            argument,
            then: refuse,
        };
        return Verdict::Tests(vec![low, high], Box::new(next));
    }
    if !check.deny_bits.is_empty() {
        let bits = values(&check.deny_bits)
            .iter()
            .fold(0, |all, bit| all | bit);
        let test = Test::Bits {
            argument,
            bits,
            then: refuse,
        };
        return Verdict::Tests(vec![test], Box::new(next));
    }
    if !check.deny.is_empty() {
        let test = Test::OneOf {
            argument,
            values: values(&check.deny),
            then: refuse,
        };
        return Verdict::Tests(vec![test], Box::new(next));
    }
    let mut plain = check.allow.clone();
    let mut tests = Vec::new();
    for (families, then) in counted_sockets(profile) {
        if families.iter().all(|family| plain.contains(family)) {
            plain.retain(|family| !families.contains(family));
            tests.push(Test::OneOf {
                argument,
                values: values(&families),
                then,
            });
        }
    }
    tests.push(Test::OneOf {
        argument,
        values: values(&plain),
        then: next,
    });
    Verdict::Tests(tests, Box::new(refuse))
}

/// Families of sockets of which the spawner makes some, and the verdict on each.
fn counted_sockets(profile: &Profile) -> [(Vec<String>, Verdict); 2] {
    let notified = |protocols: &[String], otherwise: Verdict| {
        let test = Test::OneOf {
            argument: 2,
            values: values(protocols),
            then: Verdict::Notify,
        };
        Verdict::Tests(vec![test], Box::new(otherwise))
    };
    let netlink = Verdict::Errno(errno(&profile.netlink.errno));
    [
        (
            vec!["AF_NETLINK".to_owned()],
            notified(&profile.netlink.allow, netlink),
        ),
        (
            profile.counted.families.clone(),
            notified(&profile.counted.protocols, Verdict::Allow),
        ),
    ]
}

fn call(name: &str) -> Number {
    numbers::call(name).unwrap_or_else(|| panic!("the profile names an unknown call: {name}"))
}

fn errno(name: &str) -> u16 {
    numbers::errno(name).unwrap_or_else(|| panic!("the profile names an unknown error: {name}"))
}

fn values(names: &[String]) -> Vec<u32> {
    let value = |name: &String| {
        numbers::constant(name)
            .unwrap_or_else(|| panic!("the profile names an unknown constant: {name}"))
    };
    names.iter().map(value).collect()
}

/// Where the parts of `struct seccomp_data` are.
const CALL_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;
const ARGUMENTS_OFFSET: u32 = 16;

fn program(segments: &[Segment]) -> Vec<sock_filter> {
    let mut code = vec![
        load(ARCHITECTURE_OFFSET),
        jump(libc::BPF_JEQ, numbers::ARCHITECTURE, 1, 0),
        // Another processor mode (32-bit calls on a 64-bit kernel) has other numbers, so no
        // verdict would mean what it says.
        answer(&Verdict::Errno(errno("ENOSYS"))),
        load(CALL_OFFSET),
    ];
    code.extend(search(segments));
    code
}

/// A binary search that ends in the verdict of the call number in the accumulator.
fn search(segments: &[Segment]) -> Vec<sock_filter> {
    if let [only] = segments {
        return verdict(&only.verdict);
    }
    let (low, high) = segments.split_at(segments.len() / 2);
    let (low, first_high) = (search(low), high[0].first);
    let mut code = Vec::new();
    match u8::try_from(low.len()) {
        Ok(distance) => code.push(jump(libc::BPF_JGE, first_high, distance, 0)),
        Err(_) => {
            // A conditional jump reaches 255 instructions; a plain one reaches any.
            code.push(jump(libc::BPF_JGE, first_high, 0, 1));
            let distance = u32::try_from(low.len()).expect("a filter is short");
            code.push(instruction(libc::BPF_JMP | libc::BPF_JA, 0, 0, distance));
        }
    }
    code.extend(low);
    code.extend(search(high));
    code
}

fn verdict(of: &Verdict) -> Vec<sock_filter> {
    let Verdict::Tests(tests, otherwise) = of else {
        return vec![answer(of)];
    };
    let mut code = Vec::new();
    for test in tests {
        /// The processors we run on have the lower half first.
        const HIGH: u32 = 4;
        let (offset, operation, values, then) = match test {
            Test::Bits {
                argument,
                bits,
                then,
            } => (8 * argument, libc::BPF_JSET, vec![*bits], then),
            Test::HighBits { argument, then } => {
                (8 * argument + HIGH, libc::BPF_JSET, vec![u32::MAX], then)
            }
            Test::OneOf {
                argument,
                values,
                then,
            } => (8 * argument, libc::BPF_JEQ, values.clone(), then),
        };
        let then = verdict(then);
        let skip = u8::try_from(then.len()).expect("a check is short");
        code.push(load(ARGUMENTS_OFFSET + offset));
        let count = values.len();
        for (i, value) in values.into_iter().enumerate() {
            let rest = u8::try_from(count - i - 1).expect("a check is short");
            let otherwise = if rest == 0 { skip } else { 0 };
            code.push(jump(operation, value, rest, otherwise));
        }
        code.extend(then);
    }
    code.extend(verdict(otherwise));
    code
}

fn answer(verdict: &Verdict) -> sock_filter {
    let value = match verdict {
        Verdict::Allow => libc::SECCOMP_RET_ALLOW,
        Verdict::Notify => libc::SECCOMP_RET_USER_NOTIF,
        Verdict::Errno(number) => libc::SECCOMP_RET_ERRNO | u32::from(*number),
        Verdict::Tests(..) => unreachable!("tests are compiled by `verdict`"),
    };
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, value)
}

fn load(offset: u32) -> sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset)
}

fn jump(operation: u32, value: u32, yes: u8, no: u8) -> sock_filter {
    instruction(libc::BPF_JMP | operation | libc::BPF_K, yes, no, value)
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    let code = u16::try_from(code).expect("BPF opcodes are 16 bits");
    sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests;
