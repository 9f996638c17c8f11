//! The expressions that rules are made of, each as the kernel reads it. What they are good for is the
//! ruleset's.

use super::super::netlink::Attributes;
use super::{NOT_EQUAL, REGISTER, VERDICT_REGISTER};

pub(super) fn connection_state(rule: &mut Attributes<'_>, states: u32) {
    const KEY_STATE: u32 = 0;
    expression(rule, "ct", |a| {
        a.u32_be(1, REGISTER);
        a.u32_be(2, KEY_STATE);
    });
    mask(rule, states.to_ne_bytes());
    compare(rule, NOT_EQUAL, &0_u32.to_ne_bytes());
}

pub(super) fn connection_limit_expression(a: &mut Attributes<'_>, limit: u32) {
    /// Matches above the limit and not below it.
    const INVERTED: u32 = 1;
    a.text(1, "connlimit");
    a.nest(2, |a| {
        a.u32_be(1, limit);
        a.u32_be(2, INVERTED);
    });
}

pub(super) fn expression(
    rule: &mut Attributes<'_>,
    name: &str,
    data: impl FnOnce(&mut Attributes<'_>),
) {
    rule.nest(1, |a| {
        a.text(1, name);
        a.nest(2, data);
    });
}

pub(super) fn meta(rule: &mut Attributes<'_>, key: u32) {
    expression(rule, "meta", |a| {
        a.u32_be(1, REGISTER);
        a.u32_be(2, key);
    });
}

pub(super) fn compare(rule: &mut Attributes<'_>, operation: u32, value: &[u8]) {
    expression(rule, "cmp", |a| {
        a.u32_be(1, REGISTER);
        a.u32_be(2, operation);
        a.nest(3, |a| a.bytes(1, value));
    });
}

pub(super) fn payload(rule: &mut Attributes<'_>, header: u32, offset: u32, len: u32) {
    payload_to(rule, REGISTER, (header, offset, len));
}

pub(super) fn payload_to(
    rule: &mut Attributes<'_>,
    register: u32,
    (header, offset, len): (u32, u32, u32),
) {
    expression(rule, "payload", |a| {
        a.u32_be(1, register);
        a.u32_be(2, header);
        a.u32_be(3, offset);
        a.u32_be(4, len);
    });
}

pub(super) fn mask(rule: &mut Attributes<'_>, mask: [u8; 4]) {
    expression(rule, "bitwise", |a| {
        a.u32_be(1, REGISTER);
        a.u32_be(2, REGISTER);
        a.u32_be(3, 4);
        a.nest(4, |a| a.bytes(1, &mask));
        a.nest(5, |a| a.bytes(1, &[0; 4]));
    });
}

pub(super) fn fib(rule: &mut Attributes<'_>, result: u32, flags: u32) {
    expression(rule, "fib", |a| {
        a.u32_be(1, REGISTER);
        a.u32_be(2, result);
        a.u32_be(3, flags);
    });
}

pub(super) fn lookup(rule: &mut Attributes<'_>, set: &str, register: u32) {
    expression(rule, "lookup", |a| {
        a.text(1, set);
        a.u32_be(2, register);
    });
}

/// Puts a constant into a register.
pub(super) fn load(rule: &mut Attributes<'_>, register: u32, value: &[u8]) {
    expression(rule, "immediate", |a| {
        a.u32_be(1, register);
        a.nest(2, |a| a.bytes(1, value));
    });
}

pub(super) fn verdict(rule: &mut Attributes<'_>, code: u32) {
    expression(rule, "immediate", |a| {
        a.u32_be(1, VERDICT_REGISTER);
        a.nest(2, |a| a.nest(2, |a| a.u32_be(1, code)));
    });
}
