//! The rules for network policies. A target that could never match is refused, because its
//! author believes that it does.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::egress::policy::RULES_MAX_DEFAULT;
use crate::error::ErrorCode;
use crate::label::is_domain_label;
use crate::network_policy::{NetworkPolicy, NetworkRule};
use crate::problem::{Excerpt, Problem, Problems};

/// What a rule is about. Kept as the text that it is read from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// One name, in lower case.
    Name(String),
    /// Every name below this one, at any depth, but not the name itself.
    NamesBelow(String),
    /// A range of addresses; one address is a range of full length.
    Range {
        /// Its first address.
        address: IpAddr,
        /// How many leading bits count.
        length: u8,
    },
}

/// Why a text is not a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{written} is not a target: {reason}; write a name such as example.com, *.example.com, an \
     address or a range such as 10.0.0.0/8"
)]
pub struct TargetError {
    written: String,
    reason: &'static str,
}

/// A name is at most this long, as DNS has it.
const NAME_BYTES_MAX: usize = 253;

/// A label of a name is at most this long, as DNS has it.
const LABEL_BYTES_MAX: usize = 63;

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        parse(text).map_err(|reason| TargetError {
            written: Excerpt(text).to_string(),
            reason,
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::NamesBelow(name) => write!(f, "*.{name}"),
            Self::Range { address, length } if *length == bits(*address) => address.fmt(f),
            Self::Range { address, length } => write!(f, "{address}/{length}"),
        }
    }
}

impl TryFrom<String> for Target {
    type Error = TargetError;

    fn try_from(text: String) -> Result<Self, TargetError> {
        text.parse()
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        target.to_string()
    }
}

fn parse(text: &str) -> Result<Target, &'static str> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Target::Range {
            address,
            length: bits(address),
        });
    }
    if let Some((address, length)) = text.split_once('/') {
        return range(address, length);
    }
    let name = text.to_ascii_lowercase();
    if let Some(below) = name.strip_prefix("*.") {
        check_name(below)?;
        return Ok(Target::NamesBelow(below.to_owned()));
    }
    check_name(&name)?;
    Ok(Target::Name(name))
}

fn range(address: &str, length: &str) -> Result<Target, &'static str> {
    let address: IpAddr = address
        .parse()
        .map_err(|_| "what stands before '/' is not an address")?;
    let is_plain = length.len() <= 3 && length.bytes().all(|b| b.is_ascii_digit());
    match length.parse::<u8>() {
        Ok(length) if is_plain && length <= bits(address) => Ok(Target::Range { address, length }),
        _ => Err("what stands behind '/' is not a number of bits"),
    }
}

const fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("it is empty");
    }
    if !name.is_ascii() {
        return Err("names with other letters than a-z must be written in their xn-- form");
    }
    if name.ends_with('.') {
        return Err("names end without a dot");
    }
    if name.contains([':', '/', '@']) {
        return Err("a target has no scheme, port, path or user");
    }
    // Names in use have underscores, although host names have none.
    let is_label =
        |label: &str| label.len() <= LABEL_BYTES_MAX && is_domain_label(&label.replace('_', "a"));
    if name.len() > NAME_BYTES_MAX || !name.split('.').all(is_label) {
        return Err("it is not a domain name");
    }
    if name
        .split('.')
        .all(|label| label.bytes().all(|b| b.is_ascii_digit()))
    {
        return Err("it is neither a name nor a whole address");
    }
    Ok(())
}

impl NetworkPolicy {
    /// Every problem of the policy.
    pub fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Problems::new();
        check_rules("egress", &self.egress, &mut problems);
        problems.into_result(())
    }
}

/// Checks rules; `field` is the name of their list in the request.
pub(crate) fn check_rules(field: &str, rules: &[NetworkRule], problems: &mut Problems) {
    const CODE: ErrorCode = ErrorCode::SandboxInvalidParameter;
    if rules.len() > RULES_MAX_DEFAULT {
        let message = format!(
            "has {} rules; at most {RULES_MAX_DEFAULT} are allowed",
            rules.len()
        );
        problems.add_code(ErrorCode::BodyTooLarge, field, message);
        return;
    }
    for (index, rule) in rules.iter().enumerate() {
        let target = rule.target.parse::<Target>();
        problems.check(CODE, format!("{field}[{index}].target"), target);
    }
}
