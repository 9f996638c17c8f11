//! The doctor on this machine and on machines that lack something.

use super::*;

fn settings(data_dir: &std::path::Path) -> Settings {
    Settings {
        limits: crate::DEFAULT_LIMITS,
        planned_sandboxes: 100,
        data_dir: data_dir.to_owned(),
        execd: std::env::current_exe().unwrap(),
        network: net::Config::new(data_dir),
    }
}

fn check<'a>(report: &'a Report, name: &str) -> &'a Check {
    report.checks().find(|check| check.name == name).unwrap()
}

#[test]
fn this_machine_is_examined_and_nothing_is_left_behind() {
    let temp = tempfile::tempdir().unwrap();
    let report = run(&settings(&temp.path().join("not/yet/there")));
    let text = report.to_string();
    assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0);
    let groups = std::fs::read_to_string("/proc/self/mounts").unwrap();
    for mount in groups.lines().filter(|line| line.contains(" cgroup")) {
        let point = std::path::Path::new(mount.split(' ').nth(1).unwrap());
        assert!(!point.join("opensandbox-doctor").exists());
    }
    if rustix::process::geteuid().is_root() {
        assert_eq!(check(&report, "namespaces").status, Status::Ok, "{text}");
        assert_eq!(check(&report, "overlay").status, Status::Ok, "{text}");
        assert_eq!(check(&report, "netlink").status, Status::Ok, "{text}");
        assert_eq!(check(&report, "hierarchy").status, Status::Ok, "{text}");
    } else {
        assert!(!report.is_able(), "{text}");
    }
    // A test program is linked dynamically, which no image can be expected to support.
    assert_eq!(check(&report, "execd").status, Status::Failed);
    assert!(
        !report.is_able() && text.ends_with("cannot be made on this machine.\n"),
        "{text}"
    );
}

#[test]
fn a_missing_execd_fails_and_says_what_to_do() {
    let temp = tempfile::tempdir().unwrap();
    let report = run(&Settings {
        execd: "/nonexistent/execd".into(),
        ..settings(temp.path())
    });
    let execd = check(&report, "execd");
    assert!(execd.detail.contains("/nonexistent/execd"));
    assert!(execd.fix.as_deref().unwrap().contains("cargo build"));
    let json = report.to_json();
    assert_eq!(json["able"], false);
    assert_eq!(json["sections"][5]["checks"][0]["status"], "failed");
}

#[test]
fn an_address_pool_that_the_host_uses_is_refused() {
    // Loopback's own network is on every host, and no usable pool.
    let temp = tempfile::tempdir().unwrap();
    let network = net::Config {
        addresses: "127.0.0.0/8".parse().unwrap(),
        ..net::Config::new(temp.path())
    };
    let report = run(&Settings {
        network,
        ..settings(temp.path())
    });
    let addresses = check(&report, "addresses");
    assert_eq!(addresses.status, Status::Failed, "{report}");
    assert!(addresses.detail.contains("on lo"), "{}", addresses.detail);
}
