//! What a sandbox may use, read from the texts of a request.

use std::collections::BTreeMap;

use crate::error::ErrorCode;
use crate::problem::{Excerpt, Problem, Problems};
use crate::quantity::Quantity;

/// A request names at most this many resources; there are five.
const RESOURCES_MAX: usize = 16;

/// Amounts of resources; `None` is whatever the backend gives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resources {
    /// Thousandths of a processor.
    pub cpu_millis: Option<u64>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Bytes of the writable layer.
    pub disk_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// GPUs.
    pub gpus: Option<Gpus>,
}

/// How many GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gpus {
    /// So many.
    Count(u64),
    /// All there are.
    All,
}

impl Resources {
    /// Reads `resourceLimits` or `resourceRequests`; `field` is the name of the map. Every name
    /// that is not known is a problem, because a limit that is not kept is worse than an error.
    pub fn parse(field: &str, map: &BTreeMap<String, String>) -> Result<Self, Vec<Problem>> {
        let mut problems = Problems::new();
        let resources = Self::collect(field, map, &mut problems);
        problems.into_result(resources)
    }

    pub(crate) fn collect(
        field: &str,
        map: &BTreeMap<String, String>,
        problems: &mut Problems,
    ) -> Self {
        const CODE: ErrorCode = ErrorCode::SandboxInvalidParameter;
        let mut resources = Self::default();
        if map.len() > RESOURCES_MAX {
            let message = format!(
                "has {} entries; at most {RESOURCES_MAX} are allowed",
                map.len()
            );
            problems.add_code(CODE, field, message);
            return resources;
        }
        for (name, text) in map {
            let at = format!("{field}.{}", Excerpt(name).to_string().trim_matches('"'));
            let mut amount = || problems.check(CODE, at.as_str(), positive(text));
            match name.as_str() {
                "cpu" => resources.cpu_millis = amount().and_then(Quantity::millis),
                "memory" => resources.memory_bytes = amount().map(Quantity::whole),
                "disk" | "storage" | "ephemeral-storage" => {
                    resources.disk_bytes = amount().map(Quantity::whole);
                }
                "pids" => resources.pids = amount().map(Quantity::whole),
                "gpu" | "nvidia.com/gpu" => {
                    resources.gpus = problems.check(CODE, at.as_str(), gpus(text));
                }
                _ => problems.add_code(
                    CODE,
                    at,
                    "is not a resource; the resources are cpu, memory, disk, pids and gpu",
                ),
            }
        }
        resources
    }
}

fn positive(text: &str) -> Result<Quantity, String> {
    let quantity: Quantity = text.parse().map_err(|error| format!("{error}"))?;
    if quantity.is_zero() {
        return Err("is 0; give a positive amount, or leave it out for the default".to_owned());
    }
    Ok(quantity)
}

fn gpus(text: &str) -> Result<Gpus, String> {
    if text.eq_ignore_ascii_case("all") || text == "-1" {
        return Ok(Gpus::All);
    }
    match text.parse() {
        Ok(count) if count > 0 && text.bytes().all(|b| b.is_ascii_digit()) => {
            Ok(Gpus::Count(count))
        }
        _ => Err(format!(
            "{} is neither a positive whole number nor \"all\"",
            Excerpt(text)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<Resources, Vec<Problem>> {
        let pairs = pairs
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        Resources::parse("resourceLimits", &pairs.collect())
    }

    #[test]
    fn amounts_are_read_in_the_unit_of_their_resource() {
        let resources = parse(&[
            ("cpu", "500m"),
            ("memory", "512Mi"),
            ("disk", "1G"),
            ("gpu", "all"),
        ])
        .unwrap();
        assert_eq!(
            resources,
            Resources {
                cpu_millis: Some(500),
                memory_bytes: Some(512 << 20),
                disk_bytes: Some(1_000_000_000),
                pids: None,
                gpus: Some(Gpus::All),
            }
        );
    }

    #[test]
    fn every_wrong_amount_is_told() {
        let problems = parse(&[
            ("cpu", "fast"),
            ("memory", "0"),
            ("gpu", "1.5"),
            ("swap", "1"),
        ])
        .unwrap_err();
        let fields: Vec<_> = problems
            .iter()
            .map(|problem| problem.field.as_str())
            .collect();
        assert_eq!(
            fields,
            [
                "resourceLimits.cpu",
                "resourceLimits.gpu",
                "resourceLimits.memory",
                "resourceLimits.swap"
            ]
        );
        assert!(
            problems
                .iter()
                .all(|p| p.code == ErrorCode::SandboxInvalidParameter)
        );
    }
}
