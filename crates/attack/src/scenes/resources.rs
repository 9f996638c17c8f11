//! Attacks on what sandboxes and the host have together, and on directories of the host.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use api::egress::policy::EgressPolicy;
use lifecycle::backend::Limits;

use crate::case::Verdict;
use crate::scenes::neighbours::while_attacked;
use crate::world::{FIRST_ID, IDS, Setup, World, host_volume};

const MEMORY_BYTES: u64 = 64 << 20;

/// Sockets whose memory is charged to nobody: as few as the machine's buffers are large.
fn counted_sockets() -> String {
    let text = fs::read_to_string("/proc/sys/net/core/rmem_max").expect("every kernel has it");
    let rmem_max: u64 = text.trim().parse().expect("it is a number");
    ((64 << 20) / (2 * rmem_max)).clamp(8, 64).to_string()
}

async fn run(world: &World, words: &[&str]) -> Verdict {
    world.attack(&Setup::default(), words).await.verdict()
}

pub(crate) async fn netlink(world: &World) -> Verdict {
    run(world, &["netlink_hog", &counted_sockets()]).await
}

/// Without a way outside there is a network too, and the same limit.
pub(crate) async fn ping(world: &World) -> Verdict {
    let inside = Setup {
        network: EgressPolicy::DENY_ALL,
        ..Setup::default()
    };
    let words = ["ping_hog", &counted_sockets()];
    let verdict = run(world, &words).await;
    verdict.and(world.attack(&inside, &words).await.verdict())
}

/// Two hold what they may; a third is not the worse for it.
pub(crate) async fn socket_memory(world: &World, attack: &str) -> Verdict {
    let setup = Setup {
        limits: Limits {
            memory_bytes: Some(MEMORY_BYTES),
            ..Limits::default()
        },
        ..Setup::default()
    };
    let words = [attack, &MEMORY_BYTES.to_string()];
    world.attack(&setup, &words).await.verdict()
}

pub(crate) async fn default_files(world: &World) -> Verdict {
    run(world, &["default_files", "65536"]).await
}

/// PID 1 goes after its children and before the host's processes. A host that has not the right to
/// lower scores cannot keep a sandbox from lowering its own to the host's.
pub(crate) async fn oom_order(world: &World) -> Verdict {
    let held = rustix::thread::capabilities(None).expect("a process knows its own");
    let is_able = held
        .effective
        .contains(rustix::thread::CapabilitySet::SYS_RESOURCE);
    let words = ["oom_order", if is_able { "fixed" } else { "free" }];
    run(world, &words).await
}

/// What a sandbox leaves in a directory of the host has no power there, whoever owns the
/// directory.
pub(crate) async fn host_path_privileges(world: &World) -> Verdict {
    const SOMEBODY: u32 = 4242;
    let root_owned = world.temp.path().join("of-root");
    let somebodys = world.temp.path().join("of-somebody");
    for (path, owner, mode) in [(&root_owned, 0, 0o777), (&somebodys, SOMEBODY, 0o755)] {
        fs::create_dir_all(path).expect("a directory can be made");
        std::os::unix::fs::chown(path, Some(owner), Some(owner)).expect("root can give it away");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("modes can be set");
    }
    let mut verdict = Verdict::Held;
    for path in [&root_owned, &somebodys] {
        let setup = Setup {
            volumes: vec![host_volume(path, None, false)],
            ..Setup::default()
        };
        let outcome = world.attack(&setup, &["leave_privileges", "/volume"]).await;
        verdict = verdict.and(outcome.verdict()).and(has_no_power(path));
    }
    let made = fs::metadata(somebodys.join("setuid")).map(|found| (found.uid(), found.gid()));
    verdict.and(Verdict::of(
        made.as_ref().is_ok_and(|it| *it == (SOMEBODY, SOMEBODY)),
        || format!("the owner's own files are {made:?}"),
    ))
}

fn has_no_power(directory: &Path) -> Verdict {
    let spare = FIRST_ID + IDS;
    let mut wrong = Vec::new();
    for name in ["setuid", "capable", "other"] {
        let Ok(found) = fs::metadata(directory.join(name)) else {
            wrong.push(format!("{name} was not made"));
            continue;
        };
        let is_harmless = |id: u32| id == 4242 || (spare..spare + 0x1_0000).contains(&id);
        if !is_harmless(found.uid()) || !is_harmless(found.gid()) {
            wrong.push(format!("{name} belongs to {}:{}", found.uid(), found.gid()));
        }
    }
    let mut attribute = [0_u8; 64];
    let capable = directory.join("capable");
    if let Ok(length) = rustix::fs::getxattr(&capable, "security.capability", &mut attribute) {
        // struct vfs_ns_cap_data: version 3 and the id of root in the namespace where it counts.
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| attribute[at + byte]));
        if length != 24 || word(0) >> 24 != 3 || word(20) == 0 {
            wrong.push(format!("a capability counts: {:x?}", &attribute[..length]));
        }
    }
    Verdict::of(wrong.is_empty(), || wrong.join(", "))
}

/// A directory that root in the sandbox could not write to is refused, not mounted in vain.
pub(crate) async fn host_path_of_root(world: &World) -> Verdict {
    use lifecycle::backend::Backend;
    let path = world.temp.path().join("closed");
    fs::create_dir_all(&path).expect("a directory can be made");
    let setup = |read_only| Setup {
        volumes: vec![host_volume(&path, None, read_only)],
        ..Setup::default()
    };
    let id = world.new_id();
    let refused = world
        .backend
        .create(world.spec(&id, &setup(false), &["/hostile", "nothing"]))
        .await;
    let said = refused.as_ref().err().map(ToString::to_string);
    let explains = said.as_deref().is_some_and(|text| text.contains("chown"));
    let read_only = world.attack(&setup(true), &["nothing"]).await.verdict();
    Verdict::of(explains, || format!("answered {refused:?}")).and(read_only)
}

const SHARED_PROGRAM: &str = "/usr/bin/true";

/// What the host and other sandboxes do with the programs they share is not seen.
pub(crate) async fn watch_programs(world: &World) -> Verdict {
    let setup = world.host_setup();
    let meanwhile = async || {
        let ran = std::process::Command::new(SHARED_PROGRAM).status();
        let ran = Verdict::of(ran.is_ok(), || format!("the host: {ran:?}"));
        let neighbour = world.attack(&setup, &["lock_again", SHARED_PROGRAM]).await;
        ran.and(neighbour.verdict())
    };
    while_attacked(world, &setup, &["watch_file", SHARED_PROGRAM], meanwhile).await
}

/// A lock on a program of the image is nobody else's.
pub(crate) async fn lock_programs(world: &World) -> Verdict {
    let setup = world.host_setup();
    let meanwhile = async || {
        let file = fs::File::open(SHARED_PROGRAM).expect("every system has it");
        let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        let host = rustix::fs::flock(&file, lock);
        let host = Verdict::of(host.is_ok(), || format!("the host: {host:?}"));
        drop(file);
        let neighbour = world.attack(&setup, &["lock_again", SHARED_PROGRAM]).await;
        host.and(neighbour.verdict())
    };
    while_attacked(world, &setup, &["lock_file", SHARED_PROGRAM], meanwhile).await
}

/// Settings that an administrator keeps below /usr, tokens of registries for one, stay there.
pub(crate) async fn local_settings(world: &World) -> Verdict {
    let directory = Path::new("/usr/local/etc");
    let secret = directory.join(format!("escape-secret-{}", std::process::id()));
    let was_there = directory.is_dir();
    fs::create_dir_all(directory).expect("root can make it");
    fs::write(&secret, "token").expect("root can write there");
    let words = ["hidden_paths", secret.to_str().expect("it is text")];
    let verdict = world.attack(&world.host_setup(), &words).await.verdict();
    let _ = fs::remove_file(&secret);
    if !was_there {
        let _ = fs::remove_dir(directory);
    }
    verdict
}

/// A descriptor of the host that got into a sandbox opens nothing.
pub(crate) async fn leaked_directory(world: &World) -> Verdict {
    let directory = world.marker.parent().expect("a file is in a directory");
    let name = world.marker.file_name().expect("it has a name").display();
    let (name, socket) = (
        name.to_string(),
        format!("escape-leak-{}", std::process::id()),
    );
    let meanwhile = async || {
        let Some(pid) = process_with(&socket) else {
            return Verdict::Unclear("the attacker was not found".to_owned());
        };
        let network = fs::File::open(format!("/proc/{pid}/ns/net")).expect("it lives");
        let directory = fs::File::open(directory).expect("root can read it");
        let sent = world.inside(network.as_fd(), || send_descriptor(&socket, &directory));
        Verdict::of(sent.is_ok(), || format!("sending it: {sent:?}"))
    };
    let words = ["leaked_directory", socket.as_str(), name.as_str()];
    while_attacked(world, &Setup::default(), &words, meanwhile).await
}

/// The process of a sandbox that has this word on its command line. execd has it too, as PID 1.
fn process_with(word: &str) -> Option<u32> {
    let names = fs::read_dir("/proc").ok()?.flatten();
    let mut ids = names.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.find(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0)
            .any(|part| part == word.as_bytes())
    })
}

fn send_descriptor(socket: &str, descriptor: &fs::File) -> std::io::Result<()> {
    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
        SocketType,
    };
    let address = SocketAddrUnix::new_abstract_name(socket.as_bytes())?;
    let connection = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::net::connect(&connection, &address)?;
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let list = [descriptor.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&list));
    let text = [std::io::IoSlice::new(b"d")];
    rustix::net::sendmsg(&connection, &text, &mut ancillary, SendFlags::empty())?;
    Ok(())
}
