//! The rules for the credential vault that need no knowledge of the policy or of what the vault
//! holds already.

use std::collections::BTreeSet;

use super::network::Target;
use crate::egress::vault::{
    CreateVaultRequest, Credential, CredentialAuth, CredentialBinding, MutateVaultRequest,
};
use crate::error::ErrorCode;
use crate::problem::{Excerpt, Problem, Problems};

/// A vault takes at most this many secrets, and as many bindings, in one request.
const ENTRIES_MAX: usize = 1024;

/// A name is at most this long.
const NAME_BYTES_MAX: usize = 253;

/// A secret is at most this long: header values beyond it are refused by common servers.
const VALUE_BYTES_MAX: usize = 16 * 1024;

const CODE: ErrorCode = ErrorCode::InvalidRequestBody;

/// Headers that decide where a request ends or goes, and so must not carry a secret.
const RESERVED_HEADERS: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "forwarded",
];

impl CreateVaultRequest {
    /// Every problem of the request.
    pub fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Problems::new();
        let names = check_credentials("credentials", &self.credentials, &mut problems);
        check_bindings("bindings", &self.bindings, &mut problems);
        for (index, binding) in self.bindings.iter().enumerate() {
            for credential in binding.auth.credentials() {
                if !names.contains(credential) {
                    problems.add_code(
                        CODE,
                        format!("bindings[{index}].auth"),
                        format!("{} is not one of the credentials", Excerpt(credential)),
                    );
                }
            }
        }
        problems.into_result(())
    }
}

impl MutateVaultRequest {
    /// Every problem of the request.
    pub fn validate(&self) -> Result<(), Vec<Problem>> {
        let mut problems = Problems::new();
        if let Some(set) = &self.credentials {
            let added = check_credentials("credentials.add", &set.add, &mut problems);
            let replaced = check_credentials("credentials.replace", &set.replace, &mut problems);
            let names = added.into_iter().chain(replaced);
            check_once(
                "credentials",
                names.chain(strings(&set.delete)),
                &mut problems,
            );
        }
        if let Some(set) = &self.bindings {
            check_bindings("bindings.add", &set.add, &mut problems);
            check_bindings("bindings.replace", &set.replace, &mut problems);
            let names = set
                .add
                .iter()
                .chain(&set.replace)
                .map(|binding| binding.name.as_str());
            check_once("bindings", names.chain(strings(&set.delete)), &mut problems);
        }
        problems.into_result(())
    }
}

impl CredentialAuth {
    /// The names of the secrets it uses.
    pub fn credentials(&self) -> Vec<&str> {
        match self {
            Self::Bearer { credential }
            | Self::Basic { credential }
            | Self::ApiKey { credential, .. } => vec![credential],
            Self::CustomHeaders { headers } => headers
                .iter()
                .map(|header| header.credential.as_str())
                .collect(),
        }
    }
}

fn strings(texts: &[String]) -> impl Iterator<Item = &str> {
    texts.iter().map(String::as_str)
}

fn check_once<'a>(field: &str, names: impl Iterator<Item = &'a str>, problems: &mut Problems) {
    let mut seen = BTreeSet::new();
    for name in names.take(3 * ENTRIES_MAX) {
        if !seen.insert(name) {
            problems.add_code(CODE, field, format!("{} is named twice", Excerpt(name)));
        }
    }
}

fn check_credentials<'a>(
    field: &str,
    credentials: &'a [Credential],
    problems: &mut Problems,
) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    check_count(field, credentials.len(), problems);
    for (index, credential) in credentials.iter().take(ENTRIES_MAX).enumerate() {
        let at = format!("{field}[{index}]");
        check_name(&at, &credential.name, problems);
        if !names.insert(credential.name.as_str()) {
            let message = format!("{} is named twice", Excerpt(&credential.name));
            problems.add_code(CODE, format!("{at}.name"), message);
        }
        let value = credential.source.value.expose();
        let is_header_value = value
            .bytes()
            .all(|b| b == b'\t' || (b >= b' ' && b != 0x7F));
        if value.is_empty() || value.len() > VALUE_BYTES_MAX || !is_header_value {
            let message = format!(
                "is not 1 to {VALUE_BYTES_MAX} bytes without control characters, as a header is"
            );
            problems.add_code(CODE, format!("{at}.source.value"), message);
        }
    }
    names
}

fn check_bindings(field: &str, bindings: &[CredentialBinding], problems: &mut Problems) {
    check_count(field, bindings.len(), problems);
    for (index, binding) in bindings.iter().take(ENTRIES_MAX).enumerate() {
        let at = format!("{field}[{index}]");
        check_name(&at, &binding.name, problems);
        if binding.matches.hosts.is_empty() {
            let message = "is empty; name the hosts that get the credential";
            problems.add_code(CODE, format!("{at}.match.hosts"), message);
        }
        for (number, host) in binding.matches.hosts.iter().take(ENTRIES_MAX).enumerate() {
            check_host(&format!("{at}.match.hosts[{number}]"), host, problems);
        }
        if binding
            .matches
            .ports
            .iter()
            .any(|port| !matches!(port, 80 | 443))
        {
            problems.add_code(
                CODE,
                format!("{at}.match.ports"),
                "may hold only 80 and 443",
            );
        }
        if binding
            .matches
            .paths
            .iter()
            .any(|path| !path.starts_with('/'))
        {
            problems.add_code(
                CODE,
                format!("{at}.match.paths"),
                "must each begin with '/'",
            );
        }
        if binding
            .matches
            .methods
            .iter()
            .any(|method| !is_token(method))
        {
            problems.add_code(
                CODE,
                format!("{at}.match.methods"),
                "must each be an HTTP method",
            );
        }
        check_auth(&format!("{at}.auth"), &binding.auth, problems);
    }
}

fn check_auth(at: &str, auth: &CredentialAuth, problems: &mut Problems) {
    let names: Vec<&str> = match auth {
        CredentialAuth::Bearer { .. } | CredentialAuth::Basic { .. } => return,
        CredentialAuth::ApiKey { name, .. } => vec![name],
        CredentialAuth::CustomHeaders { headers } if headers.is_empty() => {
            problems.add_code(
                CODE,
                format!("{at}.headers"),
                "is empty; name at least one header",
            );
            return;
        }
        CredentialAuth::CustomHeaders { headers } => {
            headers.iter().map(|header| header.name.as_str()).collect()
        }
    };
    for name in names {
        let is_reserved = RESERVED_HEADERS
            .iter()
            .any(|reserved| reserved.eq_ignore_ascii_case(name));
        if !is_token(name) {
            let message = format!("{} is not a header name", Excerpt(name));
            problems.add_code(CODE, at, message);
        } else if is_reserved {
            let message = format!("header {name} cannot carry a credential");
            problems.add_code(CODE, at, message);
        }
    }
}

fn check_host(at: &str, host: &str, problems: &mut Problems) {
    let is_right = match host.parse::<Target>() {
        Ok(Target::Name(name) | Target::NamesBelow(name)) => name.contains('.'),
        _ => false,
    };
    if !is_right {
        let message = format!(
            "{} is not a full domain name such as api.example.com or *.example.com",
            Excerpt(host)
        );
        problems.add_code(CODE, at, message);
    }
}

fn check_count(field: &str, count: usize, problems: &mut Problems) {
    if count > ENTRIES_MAX {
        let message = format!("has {count} entries; at most {ENTRIES_MAX} are allowed");
        problems.add_code(CODE, field, message);
    }
}

fn check_name(at: &str, name: &str, problems: &mut Problems) {
    let is_plain = name.bytes().all(|b| b.is_ascii_graphic() && b != b'/');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !is_plain {
        let message = format!(
            "{} is not 1 to {NAME_BYTES_MAX} visible characters of ASCII without '/'",
            Excerpt(name)
        );
        problems.add_code(CODE, format!("{at}.name"), message);
    }
}

/// Whether this is a token of HTTP (RFC 9110, section 5.6.2).
fn is_token(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.bytes().all(legal)
}
