//! Each rule refuses what breaks it, whoever asks.

use super::*;
use api::egress::policy::{EgressPolicy, EgressRule, PolicyAction};

const ALL: Capabilities = Capabilities {
    pause: true,
    snapshot: true,
    network_none: true,
    network_rules: false,
    disk_limit: true,
    gpu: true,
    foreign_platform: true,
};

fn rules() -> Rules {
    Rules {
        host_paths: vec!["/srv".into(), "/srv/data".into()],
        lifetime_max: Some(Duration::from_secs(3600)),
        renew_on_access: false,
        volume_size_default: Some(1 << 30),
    }
}

fn try_admit(caller: &Caller, request: CreateRequest) -> Result<Admitted, Error> {
    let limits = Limits {
        rules: &rules(),
        capabilities: ALL,
        backend: "test",
        snapshot: &|id| Err(Error::SnapshotNotFound(id.clone())),
    };
    admit(caller, request, &limits)
}

fn asking(change: impl FnOnce(&mut CreateRequest)) -> Result<Admitted, Error> {
    let mut request = CreateRequest::from_image("image");
    change(&mut request);
    try_admit(&Caller::operator("somebody"), request)
}

fn volume(source: VolumeRequestSource) -> VolumeRequest {
    VolumeRequest {
        name: "data".to_owned(),
        source,
        mount_path: "/data".to_owned(),
        read_only: false,
        sub_path: None,
    }
}

fn host(path: &str) -> VolumeRequest {
    volume(VolumeRequestSource::HostPath(path.to_owned()))
}

#[test]
fn a_host_path_is_mounted_from_the_narrowest_directory_that_admits_it() {
    let admitted = asking(|it| it.volumes = vec![host("/srv/data/a"), host("/srv/b")]).unwrap();
    let roots: Vec<_> = admitted
        .volumes()
        .iter()
        .map(|volume| match &volume.source {
            VolumeSource::HostPath { allowed_root, .. } => allowed_root.as_str(),
            VolumeSource::Named { .. } => "",
        })
        .collect();
    assert_eq!(roots, ["/srv/data", "/srv"]);
}

#[test]
fn every_volume_that_is_not_allowed_is_named() {
    let outside = ["/etc", "/srvx", "/srv/../etc"].map(host);
    let named = VolumeRequestSource::Named {
        claim: "claim".to_owned(),
        create: true,
        delete_with_sandbox: false,
        size_bytes: None,
        storage_class: Some("fast".to_owned()),
    };
    let [a, b, c] = outside;
    let bucket = volume(VolumeRequestSource::ObjectStore);
    let refused = asking(|it| it.volumes = vec![a, host("/srv"), b, c, volume(named), bucket]);
    let Err(Error::NotAdmitted(violations)) = refused else {
        panic!("{refused:?}");
    };
    let wanted = [
        Violation::HostPathNotAllowed { index: 0 },
        Violation::HostPathNotAllowed { index: 2 },
        Violation::HostPathNotAllowed { index: 3 },
        Violation::StorageClass { index: 4 },
        Violation::ObjectStore { index: 5 },
    ];
    assert_eq!(violations, wanted);
}

#[test]
fn a_lifetime_beyond_the_longest_is_refused() {
    assert!(asking(|it| it.timeout = Some(Duration::from_secs(3600))).is_ok());
    let refused = asking(|it| it.timeout = Some(Duration::from_secs(3601)));
    assert!(matches!(refused, Err(Error::NotAdmitted(_))), "{refused:?}");
    let refused = asking(|it| it.renew_on_access = Some(Duration::from_secs(60)));
    assert!(matches!(
        refused,
        Err(Error::Unsupported {
            feature: Feature::RenewOnAccess,
            ..
        })
    ));
}

#[test]
fn network_rules_that_nobody_enforces_are_refused() {
    let rule = EgressRule {
        action: PolicyAction::Allow,
        target: "example.com".parse().unwrap(),
        ports: Vec::new(),
        protocol: None,
    };
    let refused = asking(|it| it.network.rules = vec![rule]);
    assert!(matches!(
        refused,
        Err(Error::Unsupported {
            feature: Feature::NetworkRules,
            ..
        })
    ));
    assert!(asking(|it| it.network = EgressPolicy::DENY_ALL).is_ok());
    assert!(asking(|it| it.network = EgressPolicy::ALLOW_ALL).is_ok());
}

#[test]
fn a_visitor_makes_nothing_and_tenants_do_not_see_each_other() {
    let refused = try_admit(&Caller::visitor(), CreateRequest::from_image("image"));
    assert!(matches!(refused, Err(Error::Forbidden(_))), "{refused:?}");
    let ours = Tenant::default();
    let other: Tenant = "other".parse().unwrap();
    let operator = Caller::operator("somebody");
    assert!(sees_all_of(&operator, &ours) && !sees_all_of(&operator, &other));
    assert!(sees_all_of(&Caller::server(), &other));
}
