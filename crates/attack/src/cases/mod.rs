//! All cases, by class, in the order of reports. A name never changes its meaning: reports of different
//! versions are compared by it.

mod control;
mod filesystem;
mod images;
mod kernel;
mod neighbours;
mod network;
mod resources;

use crate::case::{Case, Class};

/// Every case with its class.
pub(crate) fn all() -> impl Iterator<Item = (Class, &'static Case)> {
    let classes: [(Class, &'static [Case]); 7] = [
        (Class::Kernel, &kernel::CASES),
        (Class::Filesystem, &filesystem::CASES),
        (Class::Network, &network::CASES),
        (Class::Resources, &resources::CASES),
        (Class::Neighbours, &neighbours::CASES),
        (Class::Control, &control::CASES),
        (Class::Images, &images::CASES),
    ];
    classes
        .into_iter()
        .flat_map(|(class, cases)| cases.iter().map(move |case| (class, case)))
}

/// What reports call a case.
pub(crate) fn id(class: Class, case: &Case) -> String {
    format!("{}.{}", class.name(), case.name)
}

/// What many cases would mean. Said once, so that it is said alike.
const TAKES_THE_HOST: &str = "the sandbox runs code in the host's kernel, or as root of the host";
const CHANGES_THE_HOST: &str = "the sandbox changes settings of the whole machine";
const READS_THE_HOST: &str = "the sandbox reads files or memory of the host";
const KNOWS_THE_HOST: &str = "the sandbox learns about the machine what other attacks begin with";
const TAKES_PID_1: &str =
    "code in the sandbox takes over PID 1, and with it what the owner's commands do and say";
const STARVES_THE_HOST: &str =
    "one sandbox takes from the host and all others what they need to work";
const REACHES_INSIDE: &str =
    "the sandbox reaches services of the host, of a cloud's metadata or of other sandboxes";
const SEES_NEIGHBOURS: &str = "one sandbox sees or disturbs what another or the host does";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_case_says_what_stops_it() {
        let mut seen = std::collections::BTreeSet::new();
        for (class, case) in all() {
            assert!(seen.insert(id(class, case)), "{} stands twice", case.name);
            assert!(
                !case.protections.is_empty(),
                "{}: nothing stops it",
                case.name
            );
        }
        assert!(seen.len() >= 150, "{} cases", seen.len());
    }
}
