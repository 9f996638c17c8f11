//! That each case fails when what stops it is taken away: every protection that it names, together.
//!
//! Needs a build with the feature `unprotected`: `make test-unprotected`. Cases of which a protection has no switch
//! are named at the end; those are how a sandbox is made, the kernel's own, or execd's.

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};

use attack::CaseReport;

/// Cases that hold without what they name, and why that is no hole.
const HOLD_ALL_THE_SAME: [(&str, &str); 3] = [
    (
        "kernel.sys_useful",
        "it is no attack: it says that what programs need of /sys is there",
    ),
    (
        "kernel.file_capability",
        "the kernel does not honour the attribute on the mounts of this machine; why was not found out",
    ),
    (
        "resources.default_files",
        "a machine whose own limit is lower than the default has no need of it",
    ),
];

pub(crate) fn run() -> ExitCode {
    if !cfg!(feature = "unprotected") {
        eprintln!("this build cannot take protections away: make test-unprotected");
        return ExitCode::FAILURE;
    }
    let mut without: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut fixed = Vec::new();
    for case in attack::list(&[]) {
        match switches(&case) {
            Some(names) => without.entry(names).or_default().push(case.id),
            None => fixed.push(case.id),
        }
    }
    let (mut shown, mut held) = (0, Vec::new());
    for (names, ids) in &without {
        let outcomes = outcomes(names, ids);
        for id in ids {
            let outcome = outcomes.get(id).map_or("missing", String::as_str);
            let is_excused = HOLD_ALL_THE_SAME.iter().any(|(known, _)| known == id);
            println!("{outcome:<12} {id} without {names}");
            match outcome {
                "got-through" | "unclear" => shown += 1,
                _ if is_excused => {}
                _ => held.push(format!("{id} without {names}: {outcome}")),
            }
        }
    }
    println!("\n{shown} cases fail without what stops them.");
    println!(
        "{} have a protection that cannot be taken away: {}",
        fixed.len(),
        fixed.join(", ")
    );
    for (id, why) in HOLD_ALL_THE_SAME {
        println!("{id} holds all the same: {why}");
    }
    if held.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!(
        "SHOW NOTHING, for they do not fail:\n  {}",
        held.join("\n  ")
    );
    ExitCode::FAILURE
}

/// What must be taken away for the case to fail; `None` where something of it cannot be.
fn switches(case: &CaseReport) -> Option<String> {
    if !case
        .protections
        .iter()
        .all(|protection| protection.has_switch())
    {
        return None;
    }
    let names: Vec<String> = case
        .protections
        .iter()
        .map(|protection| protection.name())
        .collect();
    Some(names.join(","))
}

/// How cases end in a program that does without some protections.
fn outcomes(without: &str, ids: &[String]) -> BTreeMap<String, String> {
    let program = std::env::current_exe().expect("a program knows its path");
    let output = Command::new(program)
        .arg("--json")
        .args(ids)
        .env("OSB_WITHOUT", without)
        .output()
        .expect("this program starts again");
    let report: serde_json::Value = match serde_json::from_slice(&output.stdout) {
        Ok(report) => report,
        Err(error) => {
            let said = String::from_utf8_lossy(&output.stderr);
            println!("without {without} there is no report: {error}; {said}");
            return BTreeMap::new();
        }
    };
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let cases = report["cases"].as_array().cloned().unwrap_or_default();
    cases
        .iter()
        .map(|case| (text(&case["id"]), text(&case["outcome"])))
        .collect()
}
