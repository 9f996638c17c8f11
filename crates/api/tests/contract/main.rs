//! Holds our OpenAPI documents to the published protocol.
//!
//! The tables in `contract/` hold the facts of the published documents: operations, parameters,
//! bodies, answers, fields. Each must be in our documents and be compatible: we take every request
//! that the protocol allows, and every answer of ours is one that it allows. What differs must be
//! in `contract/differences.tsv`, with its reason.
//!
//! The tables are made by `tools/contract.py`. Run with `--nocapture` to see what was compared.

mod compare;
mod model;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use api::spec::Contract;
use serde_json::{Value, json};

use crate::compare::Comparison;
use crate::model::Model;

/// Which of our documents answers for which table.
const TABLES: [(&str, Contract); 5] = [
    ("lifecycle-1.1.1", Contract::Lifecycle),
    ("lifecycle-2026-06", Contract::Lifecycle),
    ("execd-2026-06", Contract::Execution),
    ("egress-2026-06", Contract::Egress),
    ("diagnostics-2026-06", Contract::Diagnostics),
];

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("{} is readable: {error}", path.display()))
}

#[test]
fn the_documents_in_specs_are_those_of_the_types() {
    for contract in Contract::ALL {
        let path = directory("../../specs").join(contract.file_name());
        assert!(
            read(&path) == contract.render(),
            "specs/{} is stale; run `cargo run -p api --example specs`",
            contract.file_name()
        );
    }
}

#[test]
fn every_reference_of_a_document_leads_somewhere() {
    for contract in Contract::ALL {
        let document = contract.document();
        for reference in model::references(&document) {
            let pointer = reference.trim_start_matches('#');
            assert!(
                document.pointer(pointer).is_some(),
                "{contract:?} has no {reference}"
            );
        }
        let mut ids: Vec<_> = contract.operations().into_iter().map(|it| it.id).collect();
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), count, "{contract:?} names each operation once");
    }
}

#[test]
fn our_documents_keep_the_published_protocol() {
    let differences = differences();
    let mut unused: BTreeMap<_, _> = differences.clone();
    let mut unexplained = Vec::new();
    let (mut operations, mut fields) = (0, 0);
    for (table, contract) in TABLES {
        let theirs = Model::from_table(&read(&directory("contract").join(format!("{table}.tsv"))));
        let ours = Model::from_document(&contract.document());
        let comparison = Comparison::run(&theirs, &ours);
        println!(
            "{table}: {} operations, {} parameters, {} bodies and answers, {} fields compared",
            comparison.operations, comparison.parameters, comparison.bodies, comparison.fields,
        );
        operations += comparison.operations;
        fields += comparison.fields + comparison.parameters;
        for (place, problem) in comparison.mismatches {
            let key = (table.to_owned(), place.clone());
            match differences.get(&key) {
                Some(reason) => {
                    if unused.remove(&key).is_some() {
                        println!("  differs: {place}: {problem}\n    because {reason}");
                    }
                }
                None => unexplained.push(format!("{table}\t{place}\t{problem}")),
            }
        }
    }
    println!(
        "in all: {operations} operations, {fields} fields and parameters, {} deliberate differences",
        differences.len()
    );
    assert!(
        unexplained.is_empty(),
        "not compatible:\n{}",
        unexplained.join("\n")
    );
    assert!(
        unused.is_empty(),
        "differences that are none any more: {:?}",
        unused.keys()
    );
    assert!(
        operations > 80 && fields > 500,
        "the tables are there and were compared"
    );
}

/// Each way to break the contract is noticed.
#[test]
fn a_document_that_breaks_the_protocol_is_noticed() {
    let table = read(&directory("contract/lifecycle-1.1.1.tsv"));
    let theirs = Model::from_table(&table);
    let right = Contract::Lifecycle.document();
    let known = Comparison::run(&theirs, &Model::from_document(&right))
        .mismatches
        .len();
    let schema = "/components/schemas";
    for (pointer, name, wrong, place) in [
        ("/paths", "/pools", None, "GET /pools"),
        (
            "/paths/~1sandboxes/get/responses",
            "200",
            None,
            "answer GET /sandboxes 200",
        ),
        (
            "/paths/~1sandboxes/post/responses/429",
            "headers",
            None,
            "header POST /sandboxes 429",
        ),
        (
            "/paths/~1sandboxes/get",
            "parameters",
            None,
            "param GET /sandboxes query page",
        ),
        (
            "/paths/~1pools/post",
            "requestBody",
            None,
            "body POST /pools",
        ),
        (
            &format!("{schema}/Sandbox/properties"),
            "createdAt",
            None,
            "answer Sandbox.createdAt",
        ),
        (
            &format!("{schema}/Sandbox"),
            "required",
            Some(json!(["status", "createdAt"])),
            "answer Sandbox.id",
        ),
        (
            &format!("{schema}/Volume"),
            "required",
            Some(json!(["name", "subPath"])),
            "request Volume.subPath",
        ),
        (
            &format!("{schema}/CreatePoolRequest"),
            "properties",
            Some(
                json!({"name": {}, "template": {}, "capacitySpec": {}, "new": {"type": "string"}}),
            ),
            "",
        ),
        (
            &format!("{schema}/Host/properties"),
            "path",
            Some(json!({"type": "integer"})),
            "request Host.path",
        ),
    ] {
        let mut broken = right.clone();
        let members = broken.pointer_mut(pointer).and_then(Value::as_object_mut);
        let members = members.unwrap_or_else(|| panic!("{pointer} is an object"));
        match wrong {
            Some(value) => drop(members.insert(name.to_owned(), value)),
            None => drop(
                members
                    .remove(name)
                    .unwrap_or_else(|| panic!("{pointer} has {name}")),
            ),
        }
        let found = Comparison::run(&theirs, &Model::from_document(&broken)).mismatches;
        let is_noticed = found.iter().any(|(found, _)| found.starts_with(place));
        // A new field that nobody must give breaks nothing.
        let is_expected = if place.is_empty() {
            found.len() <= known
        } else {
            found.len() > known
        };
        assert!(is_noticed && is_expected, "{pointer} {name}: {found:?}");
    }
}

/// Where we differ on purpose: table, place, reason.
fn differences() -> BTreeMap<(String, String), String> {
    let mut differences = BTreeMap::new();
    for line in read(&directory("contract/differences.tsv")).lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut columns = line.splitn(3, '\t').map(str::to_owned);
        let (Some(table), Some(place), Some(reason)) =
            (columns.next(), columns.next(), columns.next())
        else {
            panic!("{line:?} has a table, a place and a reason, with tabs between");
        };
        assert!(!reason.trim().is_empty(), "{place} has a reason");
        let previous = differences.insert((table, place), reason);
        assert!(previous.is_none(), "{line:?} is there once");
    }
    differences
}
