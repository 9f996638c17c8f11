//! The nodes of the cluster: which images they have, and what processors. Kept in memory by a watch of its own,
//! because clients ask for it with each creation.
//!
//! A server may lack the right to see nodes. Then it only knows of images that its own sandboxes have used.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::image_reference::ImageReference;
use k8s_openapi::api::core::v1::Node;
use lifecycle::backend::Platform;

/// Images that are remembered without a node telling of them. A kubelet tells of its fifty largest
/// (nodeStatusMaxImages), and of new ones after seconds.
const REMEMBERED_MAX: usize = 1024;

/// What is known of all nodes.
#[derive(Default)]
pub(crate) struct Nodes {
    all: Mutex<HashMap<String, Known>>,
    used: Mutex<HashSet<String>>,
}

struct Known {
    platform: Platform,
    images: HashSet<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that runs with the lock held leaves the map half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The whole name under which nodes list an image.
fn whole(reference: &str) -> String {
    match reference.parse::<ImageReference>() {
        Ok(parsed) => parsed.with_default_tag().to_string(),
        Err(_) => reference.to_owned(),
    }
}

impl Nodes {
    pub(crate) fn see(&self, node: &Node) {
        let Some(name) = node.metadata.name.clone() else {
            return;
        };
        let Some(status) = &node.status else { return };
        let images = status.images.iter().flatten();
        let names = images.flat_map(|image| image.names.iter().flatten().cloned());
        let info = status.node_info.as_ref();
        let known = Known {
            platform: Platform {
                os: info.map_or_else(|| "linux".to_owned(), |it| it.operating_system.clone()),
                arch: info.map_or_else(String::new, |it| it.architecture.clone()),
            },
            images: names.collect(),
        };
        lock(&self.all).insert(name, known);
    }

    pub(crate) fn remove(&self, name: &str) {
        lock(&self.all).remove(name);
    }

    /// Forgets the nodes that a new list does not have.
    pub(crate) fn keep(&self, names: &HashSet<String>) {
        lock(&self.all).retain(|name, _| names.contains(name));
    }

    /// A sandbox runs from this image, or it was fetched.
    pub(crate) fn remember(&self, reference: &str) {
        let mut used = lock(&self.used);
        if used.len() < REMEMBERED_MAX {
            used.insert(whole(reference));
        }
    }

    /// It could not be had: what was remembered is no longer so.
    pub(crate) fn forget(&self, reference: &str) {
        lock(&self.used).remove(&whole(reference));
    }

    /// Whether some node that could run it has the image.
    pub(crate) fn have(&self, reference: &str, platform: Option<&Platform>) -> bool {
        let name = whole(reference);
        let fits = |known: &&Known| platform.is_none_or(|wanted| *wanted == known.platform);
        let all = lock(&self.all);
        let is_listed = { all.values() }
            .filter(fits)
            .any(|known| known.images.contains(&name));
        is_listed || lock(&self.used).contains(&name)
    }

    /// The platform of a node.
    pub(crate) fn platform(&self, name: &str) -> Option<Platform> {
        let all = lock(&self.all);
        all.get(name).map(|known| known.platform.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, arch: &str, images: &[&str]) -> Node {
        let node = json!({
            "metadata": { "name": name },
            "status": {
                "images": [{ "names": images, "sizeBytes": 1 }],
                "nodeInfo": { "architecture": arch, "operatingSystem": "linux", "bootID": "", "containerRuntimeVersion": "",
                    "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "",
                    "osImage": "", "systemUUID": "" },
            },
        });
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn an_image_is_there_where_a_node_has_it() {
        let nodes = Nodes::default();
        nodes.see(&node("a", "amd64", &["docker.io/library/python:3"]));
        let platform = |arch: &str| Platform {
            os: "linux".to_owned(),
            arch: arch.to_owned(),
        };
        assert!(nodes.have("python:3", None));
        assert!(nodes.have("docker.io/library/python:3", Some(&platform("amd64"))));
        assert!(!nodes.have("python:3", Some(&platform("arm64"))));
        assert!(!nodes.have("python:4", None));
        assert_eq!(nodes.platform("a").unwrap().arch, "amd64");
        nodes.keep(&HashSet::new());
        assert!(!nodes.have("python:3", None));
    }

    #[test]
    fn what_was_used_is_remembered_until_it_cannot_be_had() {
        let nodes = Nodes::default();
        nodes.remember("python:3");
        assert!(nodes.have("docker.io/library/python:3", None));
        nodes.forget("python:3");
        assert!(!nodes.have("python:3", None));
    }
}
