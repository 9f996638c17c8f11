//! Users and groups as the sandbox's own /etc/passwd and /etc/group name them.
//!
//! Read directly, never through libc's name service: the static binary must not load the
//! image's modules, and an image may have no libc at all. Callers that look up many ids
//! load the tables once and keep them for the request.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// One line of /etc/passwd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: PathBuf,
    pub(crate) shell: PathBuf,
}

/// Both tables, indexed. Duplicate ids and names resolve to the first line, as in libc.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    users: HashMap<u32, User>,
    user_ids: HashMap<String, u32>,
    groups: HashMap<u32, String>,
    group_ids: HashMap<String, u32>,
    /// Member name → groups that list it.
    memberships: HashMap<String, Vec<u32>>,
}

impl Accounts {
    /// Reads the sandbox's tables; a missing file is an empty table.
    pub(crate) fn load() -> Self {
        Self::load_from(Path::new("/etc/passwd"), Path::new("/etc/group"))
    }

    fn load_from(passwd: &Path, group: &Path) -> Self {
        let mut accounts = Self::default();
        for line in lines(passwd).iter() {
            accounts.add_user(line);
        }
        for line in lines(group).iter() {
            accounts.add_group(line);
        }
        accounts
    }

    pub(crate) fn user(&self, uid: u32) -> Option<&User> {
        self.users.get(&uid)
    }

    pub(crate) fn user_name(&self, uid: u32) -> Option<&str> {
        self.users.get(&uid).map(|user| user.name.as_str())
    }

    pub(crate) fn group_name(&self, gid: u32) -> Option<&str> {
        self.groups.get(&gid).map(String::as_str)
    }

    pub(crate) fn uid_of(&self, name: &str) -> Option<u32> {
        self.user_ids.get(name).copied()
    }

    pub(crate) fn gid_of(&self, name: &str) -> Option<u32> {
        self.group_ids.get(name).copied()
    }

    /// The supplementary groups of `uid` when its primary group is `gid`, as `initgroups`
    /// would set them.
    pub(crate) fn groups_of(&self, uid: u32, gid: u32) -> Vec<u32> {
        let mut groups = vec![gid];
        if let Some(listed) = self
            .users
            .get(&uid)
            .and_then(|u| self.memberships.get(&u.name))
        {
            groups.extend(listed.iter().filter(|&&listed| listed != gid));
        }
        groups
    }

    fn add_user(&mut self, line: &str) {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, _, home, shell] = fields[..] else {
            return;
        };
        let (Ok(uid), Ok(gid)) = (uid.parse(), gid.parse()) else {
            return;
        };
        self.user_ids.entry(name.to_owned()).or_insert(uid);
        self.users.entry(uid).or_insert_with(|| User {
            name: name.to_owned(),
            uid,
            gid,
            home: home.into(),
            shell: shell.into(),
        });
    }

    fn add_group(&mut self, line: &str) {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, gid, members] = fields[..] else {
            return;
        };
        let Ok(gid) = gid.parse() else { return };
        self.group_ids.entry(name.to_owned()).or_insert(gid);
        self.groups.entry(gid).or_insert_with(|| name.to_owned());
        for member in members.split(',').filter(|member| !member.is_empty()) {
            self.memberships
                .entry(member.to_owned())
                .or_default()
                .push(gid);
        }
    }
}

/// The file's lines; names are ASCII in practice, so bytes that are not UTF-8 are replaced.
fn lines(path: &Path) -> Vec<String> {
    let bytes = std::fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes)
        .lines()
        .map(|line| line.trim().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolves_ids_names_and_memberships() {
        let directory = tempfile::tempdir().unwrap();
        let passwd = directory.path().join("passwd");
        let group = directory.path().join("group");
        std::fs::write(
            &passwd,
            "root:x:0:0:root:/root:/bin/bash\nbad line\nu:x:1000:100::/home/u:/bin/sh\nu2:x:1000:7::/:/\n",
        )
        .unwrap();
        std::fs::write(&group, "root:x:0:\nusers:x:100:u\nwheel:x:10:root,u\nbad\n").unwrap();
        let accounts = Accounts::load_from(&passwd, &group);
        assert_eq!(accounts.user(1000).unwrap().name, "u");
        assert_eq!(accounts.user(1000).unwrap().gid, 100);
        assert_eq!(accounts.uid_of("u2"), Some(1000));
        assert_eq!(accounts.gid_of("wheel"), Some(10));
        assert_eq!(accounts.group_name(100), Some("users"));
        assert_eq!(accounts.groups_of(1000, 100), [100, 10]);
        assert_eq!(accounts.groups_of(1000, 5), [5, 100, 10]);
        assert_eq!(accounts.groups_of(4242, 5), [5]);
    }

    #[test]
    fn a_missing_file_is_an_empty_table() {
        let accounts =
            Accounts::load_from(Path::new("/nonexistent/a"), Path::new("/nonexistent/b"));
        assert_eq!(accounts.user_name(0), None);
    }
}
