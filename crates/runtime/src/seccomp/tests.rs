//! Runs the compiled program on a small interpreter of classic BPF, as the kernel would.

use std::collections::BTreeMap;

use super::numbers::{self, ARCHITECTURE};
use super::*;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;

fn refused(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno.cast_unsigned()
}

/// What the filter answers, and after how many instructions.
fn run(program: &[sock_filter], architecture: u32, call: u32, arguments: [u64; 6]) -> (u32, usize) {
    let mut data = [0_u8; 64];
    data[..4].copy_from_slice(&call.to_ne_bytes());
    data[4..8].copy_from_slice(&architecture.to_ne_bytes());
    for (i, argument) in arguments.iter().enumerate() {
        data[16 + 8 * i..24 + 8 * i].copy_from_slice(&argument.to_ne_bytes());
    }
    let (mut at, mut accumulator, mut steps) = (0_usize, 0_u32, 0_usize);
    loop {
        let op = program[at];
        steps += 1;
        at += 1;
        let branch = |yes: bool| usize::from(if yes { op.jt } else { op.jf });
        match u32::from(op.code) {
            0x20 => {
                let offset = op.k as usize;
                accumulator = u32::from_ne_bytes(data[offset..offset + 4].try_into().unwrap());
            }
            0x05 => at += op.k as usize,
            0x15 => at += branch(accumulator == op.k),
            0x35 => at += branch(accumulator >= op.k),
            0x45 => at += branch(accumulator & op.k != 0),
            0x06 => return (op.k, steps),
            other => panic!("unexpected opcode {other:#x}"),
        }
    }
}

#[track_caller]
fn check(name: &str, arguments: [u64; 6], expected: u32) {
    let Some(Number::Is(number)) = numbers::call(name) else {
        return;
    };
    assert_eq!(
        run(&compile(), ARCHITECTURE, number, arguments).0,
        expected,
        "{name}"
    );
}

#[test]
fn every_denied_call_gets_its_errno() {
    let profile: Profile = serde_json::from_str(include_str!("profile.json")).unwrap();
    for deny in &profile.deny {
        for name in &deny.calls {
            check(name, [0; 6], refused(i32::from(errno(&deny.errno))));
        }
    }
}

#[test]
fn everything_else_that_was_reviewed_is_allowed_and_nothing_newer() {
    let (program, profile) = (
        compile(),
        serde_json::from_str::<Profile>(include_str!("profile.json")).unwrap(),
    );
    let named: Vec<Number> = profile
        .deny
        .iter()
        .flat_map(|deny| deny.calls.iter().map(|name| call(name)))
        .chain(profile.check.iter().map(|check| call(&check.call)))
        .collect();
    for number in 0..=466 {
        if !named.contains(&Number::Is(number)) {
            assert_eq!(
                run(&program, ARCHITECTURE, number, [0; 6]).0,
                ALLOW,
                "{number}"
            );
        }
    }
    for number in [467, 470, 1_000, 0x4000_0000, 0x4000_0029, u32::MAX] {
        assert_eq!(
            run(&program, ARCHITECTURE, number, [0; 6]).0,
            refused(libc::ENOSYS)
        );
    }
}

/// Linux 5.10 ends with process_madvise, 6.18 with file_setattr; from 424 on the numbers are the same
/// everywhere.
#[test]
fn every_allowed_call_that_is_newer_than_linux_5_10_has_a_reason() {
    const PROCESS_MADVISE: u32 = 440;
    const FILE_SETATTR: u32 = 469;
    let profile: Profile = serde_json::from_str(include_str!("profile.json")).unwrap();
    let mut named = BTreeMap::new();
    for allowed in &profile.allowed_since_5_10 {
        let Number::Is(number) = call(&allowed.call) else {
            panic!("{} has no number", allowed.call);
        };
        assert!(!allowed.reason.is_empty() && !allowed.linux.is_empty());
        named.insert(number, allowed.call.as_str());
    }
    let program = compile();
    for number in PROCESS_MADVISE + 1..=FILE_SETATTR {
        let is_allowed = run(&program, ARCHITECTURE, number, [0; 6]).0 == ALLOW;
        assert_eq!(
            is_allowed,
            named.contains_key(&number),
            "call {number}: allowed {is_allowed}, named {:?}",
            named.get(&number)
        );
    }
}

#[test]
fn sockets_take_no_program_for_the_kernel() {
    for option in [26, 50, 51, 52] {
        check("setsockopt", [3, 1, option, 0, 0, 0], refused(libc::EPERM));
        check(
            "setsockopt",
            [3, 1 | 1 << 32, option, 0, 0, 0],
            refused(libc::EPERM),
        );
        // The same number of another level is another option.
        check("setsockopt", [3, 6, option, 0, 0, 0], ALLOW);
    }
    check("setsockopt", [3, 1, 8, 0, 0, 0], ALLOW);
}

#[test]
fn limits_are_ones_own_and_that_on_core_dumps_stays() {
    for resource in [4, 7] {
        check("prlimit64", [1, resource, 1, 0, 0, 0], refused(libc::EPERM));
    }
    check("prlimit64", [0, 7, 1, 0, 0, 0], ALLOW);
    check("prlimit64", [0, 4, 0, 1, 0, 0], ALLOW);
    for new in [1, 1 << 32, 0x7fff_0000_0000] {
        check("prlimit64", [0, 4, new, 0, 0, 0], refused(0));
    }
    check("setrlimit", [4, 1, 0, 0, 0, 0], refused(0));
    check("setrlimit", [7, 1, 0, 0, 0, 0], ALLOW);
}

#[test]
fn calls_of_another_processor_mode_are_refused() {
    const I386: u32 = 0x4000_0003;
    for number in 0..500 {
        assert_eq!(
            run(&compile(), I386, number, [0; 6]).0,
            refused(libc::ENOSYS)
        );
    }
}

#[test]
fn namespaces_cannot_be_made() {
    for flag in [
        0x2_0000,
        0x200_0000,
        0x400_0000,
        0x800_0000,
        0x1000_0000,
        0x2000_0000,
        0x4000_0000,
    ] {
        check("clone", [flag | 0x11, 0, 0, 0, 0, 0], refused(libc::EPERM));
        check("unshare", [flag, 0, 0, 0, 0, 0], refused(libc::EPERM));
    }
    check("unshare", [0x80, 0, 0, 0, 0, 0], refused(libc::EPERM));
    // pthread_create of glibc and fork.
    check("clone", [0x003d_0f00, 0, 0, 0, 0, 0], ALLOW);
    check("clone", [0x0120_0011, 0, 0, 0, 0, 0], ALLOW);
}

#[test]
fn only_four_socket_families_exist() {
    for family in 0..50_u64 {
        let expected = match family {
            1 | 2 | 10 => ALLOW,
            16 => NOTIFY,
            _ => refused(libc::EAFNOSUPPORT),
        };
        check("socket", [family, 1, 0, 0, 0, 0], expected);
    }
    for protocol in 0..30_u64 {
        let allowed = [0, 4, 15].contains(&protocol);
        let expected = if allowed {
            NOTIFY
        } else {
            refused(libc::EPROTONOSUPPORT)
        };
        check("socket", [16, 3, protocol, 0, 0, 0], expected);
    }
    for family in [2, 10] {
        for protocol in 0..300_u64 {
            let is_ping = [1, 58].contains(&protocol);
            let expected = if is_ping { NOTIFY } else { ALLOW };
            check("socket", [family, 2, protocol, 0, 0, 0], expected);
        }
    }
    check("socketpair", [1, 1, 0, 0, 0, 0], ALLOW);
    check(
        "socketpair",
        [2, 1, 0, 0, 0, 0],
        refused(libc::EAFNOSUPPORT),
    );
}

#[test]
fn a_high_bit_does_not_get_a_terminal_call_past_the_filter() {
    for request in [0x5412, 0x541C, 0x5423_u64] {
        check("ioctl", [0, request, 0, 0, 0, 0], refused(libc::EPERM));
        check(
            "ioctl",
            [0, request | 1 << 32, 0, 0, 0, 0],
            refused(libc::EPERM),
        );
    }
    check("ioctl", [0, 0x5413, 0, 0, 0, 0], ALLOW);
}

#[test]
fn personalities_are_those_of_linux() {
    for value in [0, 8, 0x2_0000, 0x2_0008, 0xFFFF_FFFF] {
        check("personality", [value, 0, 0, 0, 0, 0], ALLOW);
    }
    check(
        "personality",
        [0x4_0000, 0, 0, 0, 0, 0],
        refused(libc::EPERM),
    );
}

#[test]
fn no_call_takes_long_to_judge() {
    let program = compile();
    for number in 0..=500 {
        let (_, steps) = run(&program, ARCHITECTURE, number, [u64::MAX; 6]);
        assert!(steps <= 20, "call {number} takes {steps} instructions");
    }
}
