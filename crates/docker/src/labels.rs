//! What a container carries so that it can be known again. Where the published server has a name
//! for something it is the same here.
//!
//! A snapshot inherits the labels of its container and cannot be rid of them, so every container
//! of ours sets every one of these names, and a snapshot has them blank.

use std::collections::{BTreeMap, HashMap};

/// The sandbox's id. The published server uses the same name.
pub(crate) const ID: &str = "opensandbox.io/id";
/// The labels of the request, as JSON.
const GIVEN: &str = "opensandbox.io/labels";
/// Where its control socket and its token lie on the host.
pub(crate) const DIRECTORY: &str = "opensandbox.io/directory";
/// Which execd it runs.
pub(crate) const EXECD: &str = "opensandbox.io/execd";
/// Named volumes that go with the sandbox, as a JSON list. The published server's name and format.
pub(crate) const VOLUMES: &str = "opensandbox.io/volume-managed-by";
/// Its platform. The published server's names.
pub(crate) const OS: &str = "opensandbox.io/platform-os";
pub(crate) const ARCH: &str = "opensandbox.io/platform-arch";
/// On a snapshot: its id.
pub(crate) const SNAPSHOT: &str = "opensandbox.io/snapshot-id";
/// On a snapshot: how many bytes the image has that it stands on.
pub(crate) const BASE_SIZE: &str = "opensandbox.io/snapshot-base-size";

/// On a volume: that a server made it. The published server's name and value.
pub(crate) const VOLUME_MAKER: (&str, &str) = (VOLUMES, "server");

/// All names that a container of ours has.
const OURS: [&str; 9] = [
    ID, GIVEN, DIRECTORY, EXECD, VOLUMES, OS, ARCH, SNAPSHOT, BASE_SIZE,
];

/// What the labels of one container say.
pub(crate) struct Labels {
    pub(crate) id: String,
    pub(crate) given: BTreeMap<String, String>,
    pub(crate) directory: String,
    pub(crate) execd: String,
    pub(crate) volumes: Vec<String>,
    pub(crate) platform: (String, String),
}

impl Labels {
    /// As the engine keeps them.
    pub(crate) fn write(&self) -> HashMap<String, String> {
        let json = |value: serde_json::Value| value.to_string();
        let mut labels = blank();
        for (name, value) in [
            (ID, self.id.clone()),
            (GIVEN, json(serde_json::json!(self.given))),
            (DIRECTORY, self.directory.clone()),
            (EXECD, self.execd.clone()),
            (VOLUMES, json(serde_json::json!(self.volumes))),
            (OS, self.platform.0.clone()),
            (ARCH, self.platform.1.clone()),
        ] {
            labels.insert(name.to_owned(), value);
        }
        labels
    }

    /// From a container of ours or of the published server; `None` for all others.
    pub(crate) fn read(labels: &HashMap<String, String>) -> Option<Self> {
        let text = |name: &str| labels.get(name).cloned().unwrap_or_default();
        let id = text(ID);
        if id.is_empty() {
            return None;
        }
        let given = labels
            .get(GIVEN)
            .and_then(|json| serde_json::from_str(json).ok());
        Some(Self {
            id,
            given: given.unwrap_or_default(),
            directory: text(DIRECTORY),
            execd: text(EXECD),
            volumes: serde_json::from_str(&text(VOLUMES)).unwrap_or_default(),
            platform: (text(OS), text(ARCH)),
        })
    }
}

/// Every name of ours with nothing in it: what a snapshot's image must say.
pub(crate) fn blank() -> HashMap<String, String> {
    OURS.iter()
        .map(|name| ((*name).to_owned(), String::new()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let labels = Labels {
            id: "a".to_owned(),
            given: BTreeMap::from([("k".to_owned(), "v \"quoted\"\n".to_owned())]),
            directory: "/d".to_owned(),
            execd: "e".to_owned(),
            volumes: vec!["one".to_owned()],
            platform: ("linux".to_owned(), "amd64".to_owned()),
        };
        let written = labels.write();
        let read = Labels::read(&written).unwrap();
        assert_eq!(read.given, labels.given);
        assert_eq!(read.volumes, labels.volumes);
        assert_eq!(read.directory, "/d");
        assert_eq!(read.platform.1, "amd64");
        assert!(blank().keys().all(|name| written.contains_key(name)));
    }

    #[test]
    fn a_blank_container_is_no_sandbox() {
        assert!(Labels::read(&blank()).is_none());
        assert!(Labels::read(&HashMap::new()).is_none());
    }
}
