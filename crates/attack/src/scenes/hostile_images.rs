//! Images and volumes that lie in wait for whoever assembles a sandbox from them.

use std::fs;
use std::os::unix::fs::symlink;

use crate::case::Verdict;
use crate::scenes::control::get;
use crate::world::{Setup, World, host_volume};
use lifecycle::backend::Backend;

/// Makes a sandbox from an image that was tampered with. It is refused, or the attack `words`
/// inside is stopped; either way the marker of the host stays as it is.
async fn tampered(
    world: &World,
    name: &'static str,
    tamper: impl FnOnce(&std::path::Path),
    words: &[&str],
) -> Verdict {
    let root = world.rootfs(name);
    tamper(&root);
    if world.import(&root, name).await.is_err() {
        return Verdict::Held;
    }
    let id = world.new_id();
    let setup = Setup {
        image: name,
        ..Setup::default()
    };
    let entrypoint: Vec<&str> = ["/hostile"]
        .into_iter()
        .chain(words.iter().copied())
        .collect();
    let verdict = match world
        .backend
        .create(world.spec(&id, &setup, &entrypoint))
        .await
    {
        Err(_) => Verdict::of(world.backend.inspect(&id).await.is_err(), || {
            "refused, but something of it is left".to_owned()
        }),
        Ok(_) => {
            world.delete(&id).await;
            world.attack(&setup, words).await.verdict()
        }
    };
    let marker = fs::read_to_string(&world.marker).unwrap_or_default();
    verdict.and(Verdict::of(marker == "of the host", || {
        format!("the marker is {marker:?}")
    }))
}

fn replace_by_link(root: &std::path::Path, name: &str, target: &str) {
    fs::remove_dir_all(root.join(name)).expect("the directory is there");
    symlink(target, root.join(name)).expect("a link can be made");
}

pub(crate) async fn proc_link(world: &World) -> Verdict {
    tampered(
        world,
        "proc-link",
        |root| replace_by_link(root, "proc", "/tmp"),
        &["sysrq"],
    )
    .await
}

pub(crate) async fn dev_link(world: &World) -> Verdict {
    tampered(
        world,
        "dev-link",
        |root| replace_by_link(root, "dev", "/tmp"),
        &["dev_fixed"],
    )
    .await
}

/// `/etc` leads up and out, where the host's own files would be replaced.
pub(crate) async fn etc_link(world: &World) -> Verdict {
    let marker = world.marker.display().to_string();
    let tamper =
        |root: &std::path::Path| replace_by_link(root, "etc", "../../../../../../../../etc");
    tampered(world, "etc-link", tamper, &["hidden_paths", &marker]).await
}

/// A volume goes where the image has a link to the host's `/tmp`.
pub(crate) async fn volume_over_link(world: &World) -> Verdict {
    let root = world.rootfs("volume-link");
    symlink("../../../../../../../../tmp", root.join("volume")).expect("a link can be made");
    if world.import(&root, "volume-link").await.is_err() {
        return Verdict::Held;
    }
    let volume = world.temp.path().join("shared");
    fs::create_dir_all(&volume).expect("a directory can be made");
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(&volume, everybody).expect("modes can be set");
    let setup = Setup {
        image: "volume-link",
        volumes: vec![host_volume(&volume, None, false)],
        ..Setup::default()
    };
    let name = format!("escape-left-{}", std::process::id());
    let outcome = world
        .attack(&setup, &["leave_file", &format!("/volume/{name}")])
        .await;
    let leaked = fs::exists(format!("/tmp/{name}")).unwrap_or(false);
    // Being refused is as good.
    let _ = outcome;
    Verdict::of(!leaked, || "a file appeared in the host's /tmp".to_owned())
}

/// A sandbox plants a link in a shared volume; the next one asks for what it names.
pub(crate) async fn subpath_link(world: &World) -> Verdict {
    let volume = world.temp.path().join("planted");
    fs::create_dir_all(&volume).expect("a directory can be made");
    symlink("/etc", volume.join("out")).expect("a link can be made");
    symlink("../../../../../../../../etc", volume.join("up")).expect("a link can be made");
    let mut verdict = Verdict::Held;
    for sub_path in ["out", "up", "..", "../.."] {
        let setup = Setup {
            volumes: vec![host_volume(&volume, Some(sub_path), true)],
            ..Setup::default()
        };
        let id = world.new_id();
        let words = [
            "/hostile",
            "hidden_paths",
            "/volume/hostname",
            "/volume/passwd",
        ];
        let made = world.backend.create(world.spec(&id, &setup, &words)).await;
        if made.is_ok() {
            world.delete(&id).await;
            verdict = verdict.and(world.attack(&setup, &words[1..]).await.verdict());
        }
    }
    verdict
}

pub(crate) async fn volume_read_only(world: &World) -> Verdict {
    let volume = world.temp.path().join("fixed");
    fs::create_dir_all(&volume).expect("a directory can be made");
    let setup = Setup {
        volumes: vec![host_volume(&volume, None, true)],
        ..Setup::default()
    };
    let outcome = world
        .attack(&setup, &["read_only_volume", "/volume/new"])
        .await;
    let left = fs::exists(volume.join("new")).unwrap_or(true);
    outcome
        .verdict()
        .and(Verdict::of(!left, || "the host has the file".to_owned()))
}

/// The image that shows this machine's programs must show none of its secrets.
pub(crate) async fn host_image(world: &World) -> Verdict {
    let marker = world.marker.display().to_string();
    let secrets = [
        "/etc/shadow",
        "/etc/gshadow",
        "/root",
        "/home",
        "/etc/ssh",
        "/var/lib",
        "/run",
        "/boot",
    ];
    // Prints whatever can be read of them.
    let script = secrets
        .iter()
        .map(|path| format!("[ ! -f {path} ] || cat {path}; [ ! -d {path} ] || ls -A {path}"))
        .chain([format!("[ ! -e {marker} ] || echo {marker}")])
        .collect::<Vec<_>>()
        .join("\n");
    let script = format!("exec 2>/dev/null\n{script}");
    let id = world.new_id();
    let setup = Setup {
        image: "host",
        ..Setup::default()
    };
    let mut events = world.backend.events();
    let spec = world.spec(&id, &setup, &["/bin/sh", "-c", &script]);
    if let Err(error) = world.backend.create(spec).await {
        return Verdict::Unclear(format!("the sandbox was not made: {error:?}"));
    }
    let ended = tokio::time::timeout(crate::world::DEADLINE, async {
        while let Ok(event) = events.recv().await {
            if matches!(&event, lifecycle::backend::Event::Exited { id: ended, .. } if *ended == id)
            {
                return;
            }
        }
    });
    let ended = ended.await.is_ok();
    let query = lifecycle::backend::LogQuery {
        tail_lines: 100,
        since: None,
        max_bytes: 4096,
    };
    let shown = world
        .backend
        .logs(&id, query)
        .await
        .map(|logs| logs.text)
        .unwrap_or_default();
    world.delete(&id).await;
    // Directories that the image itself makes.
    let is_clean = shown
        .lines()
        .all(|line| matches!(line, "" | "sandbox" | "lock"));
    Verdict::of(ended && is_clean, || {
        format!("ended {ended}, shown:\n{shown}")
    })
}

/// execd's file API answers for the sandbox's files and no others.
pub(crate) async fn file_api_traversal(world: &World) -> Verdict {
    let victim = world.victim().await;
    let marker = world.marker.display().to_string();
    let mut verdict = Verdict::Held;
    for path in [
        marker.clone(),
        format!("/../../../../../../..{marker}"),
        format!("/proc/1/root/../../..{marker}"),
        format!("%2e%2e/%2e%2e/%2e%2e/%2e%2e{marker}"),
    ] {
        let answer = get(world, &victim, &format!("/files/download?path={path}")).await;
        let held = !answer.contains("of the host") && !answer.starts_with("HTTP/1.1 200");
        verdict = verdict.and(Verdict::of(held, || format!("{path}: {answer}")));
    }
    // The same call does answer for a file of the sandbox, or the case proves nothing.
    let own = get(world, &victim, "/files/download?path=/etc/passwd").await;
    let works = own.starts_with("HTTP/1.1 200") && own.contains("/hostile");
    world.delete(&victim).await;
    verdict.and(Verdict::of(works, || {
        format!("the file API does not answer: {own}")
    }))
}
