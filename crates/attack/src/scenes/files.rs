//! Attacks on files of the host, and on what sandboxes of one image share.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::case::Verdict;
use crate::scenes::neighbours::while_attacked;
use crate::world::{HOST_IMAGE, Setup, World, host_volume};

async fn run(world: &World, words: &[&str]) -> Verdict {
    world.attack(&Setup::default(), words).await.verdict()
}

pub(crate) async fn host_file_hidden(world: &World) -> Verdict {
    let marker = world.marker.display().to_string();
    let through_pid1 = format!("/proc/1/root{marker}");
    let through_self = format!("/proc/self/root/../../..{marker}");
    let data = world.data_dir().display().to_string();
    run(
        world,
        &["hidden_paths", &marker, &through_pid1, &through_self, &data],
    )
    .await
}

/// The table of mounts must not tell where the host keeps its files.
pub(crate) async fn mountinfo_clean(world: &World) -> Verdict {
    let data = world.data_dir().display().to_string();
    let words = ["mountinfo_clean", data.as_str()];
    let verdict = run(world, &words).await;
    // The volume of this one is the attacker's own, and below the data directory's parent.
    let of_host = world.attack(&world.host_setup(), &words).await.verdict();
    verdict.and(of_host)
}

/// A directory that the sandbox stands in is moved out of the part of it that it sees.
pub(crate) async fn moved_directory(world: &World) -> Verdict {
    let shared = world.temp.path().join("moved");
    let (inside, outside) = (shared.join("seen/inner"), shared.join("inner"));
    fs::create_dir_all(&inside).expect("a directory can be made");
    fs::write(shared.join("secret"), "of the host").expect("it is writable");
    fs::set_permissions(&inside, fs::Permissions::from_mode(0o777)).expect("modes can be set");
    let setup = Setup {
        volumes: vec![host_volume(&shared.join("seen"), None, true)],
        ..Setup::default()
    };
    let words = ["moved_directory", "/volume/inner", "secret"];
    while_attacked(world, &setup, &words, async || {
        match fs::rename(&inside, &outside) {
            Ok(()) => Verdict::Held,
            Err(error) => Verdict::Unclear(format!("moving it: {error}")),
        }
    })
    .await
}

/// /dev/null, left in a directory that is then a volume.
pub(crate) async fn volume_device(world: &World) -> Verdict {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    let directory = world.temp.path().join("with-device");
    fs::create_dir_all(&directory).expect("a directory can be made");
    let device = directory.join("null");
    let made = mknodat(
        CWD,
        &device,
        FileType::CharacterDevice,
        Mode::from_raw_mode(0o666),
        makedev(1, 3),
    );
    let opened = made.map_err(std::io::Error::from).and_then(|()| {
        fs::set_permissions(&device, fs::Permissions::from_mode(0o666))?;
        fs::File::open(&device)
    });
    if let Err(error) = opened {
        return Verdict::NotRun(format!(
            "no device works where the data directory is: {error}"
        ));
    }
    let setup = Setup {
        volumes: vec![host_volume(&directory, None, true)],
        ..Setup::default()
    };
    world
        .attack(&setup, &["volume_device", "/volume/null"])
        .await
        .verdict()
}

pub(crate) async fn freeze_filesystem(world: &World) -> Verdict {
    let directory = world.temp.path().join("frozen");
    fs::create_dir_all(&directory).expect("a directory can be made");
    let setup = Setup {
        volumes: vec![host_volume(&directory, None, true)],
        ..Setup::default()
    };
    world
        .attack(&setup, &["freeze_filesystem", "/volume"])
        .await
        .verdict()
}

pub(crate) async fn host_programs_fixed(world: &World) -> Verdict {
    let setup = Setup {
        image: HOST_IMAGE,
        ..world.host_setup()
    };
    world
        .attack(&setup, &["host_programs_fixed"])
        .await
        .verdict()
}

/// A neighbour of the same image, made before and after, finds it as it was.
pub(crate) async fn image_is_whole(world: &World) -> Verdict {
    let spoilt = run(world, &["spoil_image"]).await;
    spoilt.and(run(world, &["image_is_whole"]).await)
}
