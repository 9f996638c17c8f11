//! The list of cases. Most are one attack in one sandbox; those that need more are functions of
//! the modules beside this one.

use std::future::Future;
use std::pin::Pin;

use crate::world::{Setup, TOKEN, Verdict, World};
use crate::{bombs, egress, hostile_images, neighbours, resources};

pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = Verdict> + 'a>>;

pub(crate) struct Case {
    pub(crate) class: &'static str,
    pub(crate) name: &'static str,
    pub(crate) run: Box<dyn for<'a> Fn(&'a World) -> Running<'a>>,
}

/// Attacks that need nothing but their name.
const PLAIN: [(&str, &[&str]); 16] = [
    (
        "descriptors",
        &[
            "fds_own",
            "pid1_fd_open",
            "pid1_getfd",
            "pid1_ptrace",
            "pid1_mem",
            "pid1_exe",
        ],
    ),
    (
        "proc and sys",
        &[
            "proc_sys_kernel",
            "proc_sys_vm",
            "proc_sys_fs",
            "proc_sys_net",
            "sysrq",
            "kcore",
            "kallsyms",
            "kmsg",
            "proc_keys",
            "timers",
            "machine_info",
            "sys_write",
            "id_map",
            "oom_score",
            "sys_devices",
            "proc_machine",
            "sys_useful",
        ],
    ),
    (
        "mounts",
        &[
            "mount_tmpfs",
            "mount_proc",
            "mount_bind",
            "remount_rw",
            "unmount_mask",
            "mount_overlay",
            "pivot",
            "new_mount_api",
            "under_the_root",
        ],
    ),
    (
        "devices",
        &[
            "mknod_mem",
            "mknod_kmsg",
            "mknod_disk",
            "dev_absent",
            "dev_fixed",
        ],
    ),
    (
        "cgroups",
        &[
            "cgroup_mount",
            "release_agent",
            "cgroup_leave",
            "cgroup_raise",
        ],
    ),
    (
        "namespaces",
        &[
            "unshare_user",
            "unshare_mount",
            "unshare_net",
            "unshare_rest",
            "clone_user",
            "clone_three",
            "join_pid1",
            "join_self",
        ],
    ),
    (
        "setuid",
        &["setuid_program", "setuid_own", "file_capability"],
    ),
    (
        "privileges",
        &[
            "capabilities",
            "capset_raise",
            "locked_in",
            "scheduling",
            "raise_limits",
        ],
    ),
    ("keyring", &["keyring"]),
    (
        "kernel",
        &[
            "bpf_load",
            "perf",
            "uring",
            "uffd",
            "by_handle",
            "fanotify",
            "modules",
            "kexec",
        ],
    ),
    (
        "machine",
        &[
            "machine",
            "hardware",
            "other_abi",
            "personalities",
            "new_calls",
        ],
    ),
    ("terminal", &["terminal"]),
    (
        "network",
        &[
            "raw_socket",
            "netlink_rules",
            "transparent",
            "change_address",
        ],
    ),
    ("logs", &["log_seek"]),
    (
        "tables",
        &[
            "neighbour_table",
            "socket_filter",
            "aio",
            "page_cache_spy",
            "secret_memory",
            "netlink_takeover",
        ],
    ),
    ("limits", &["pid1_limits", "core_limit", "default_limits"]),
];

pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for (class, names) in PLAIN {
        for &name in names {
            cases.push(case(class, name, move |world| Box::pin(plain(world, name))));
        }
    }
    cases.extend([
        case("descriptors", "cwd_inside", |w| {
            Box::pin(with_marker(w, "cwd_inside"))
        }),
        case("mounts", "chroot_escape", |w| {
            Box::pin(with_marker(w, "chroot_escape"))
        }),
        case("descriptors", "token_hidden", |w| Box::pin(token_hidden(w))),
        case("mounts", "mountinfo_clean", |w| {
            Box::pin(mountinfo_clean(w))
        }),
        case("files", "host_file_hidden", |w| {
            Box::pin(host_file_hidden(w))
        }),
        case("files", "host_image_has_no_secrets", |w| {
            Box::pin(hostile_images::host_image(w))
        }),
        case("files", "image_proc_is_a_link", |w| {
            Box::pin(hostile_images::proc_link(w))
        }),
        case("files", "image_dev_is_a_link", |w| {
            Box::pin(hostile_images::dev_link(w))
        }),
        case("files", "image_etc_leads_out", |w| {
            Box::pin(hostile_images::etc_link(w))
        }),
        case("files", "image_tmp_link_volume", |w| {
            Box::pin(hostile_images::volume_over_link(w))
        }),
        case("files", "subpath_link", |w| {
            Box::pin(hostile_images::subpath_link(w))
        }),
        case("files", "volume_read_only", |w| {
            Box::pin(hostile_images::volume_read_only(w))
        }),
        case("files", "file_api_traversal", |w| {
            Box::pin(hostile_images::file_api_traversal(w))
        }),
        case("signals", "host_pid", |w| Box::pin(neighbours::host_pid(w))),
        case("signals", "neighbour_pid", |w| {
            Box::pin(neighbours::neighbour_pid(w))
        }),
        case("signals", "host_processes", |w| {
            Box::pin(neighbours::host_processes(w))
        }),
        case("signals", "kill_all", |w| Box::pin(neighbours::kill_all(w))),
        case("sockets", "abstract_of_the_host", |w| {
            Box::pin(neighbours::abstract_host(w))
        }),
        case("sockets", "abstract_of_a_neighbour", |w| {
            Box::pin(neighbours::abstract_neighbour(w))
        }),
        case("sockets", "shared_segment", |w| {
            Box::pin(neighbours::shared_segment(w))
        }),
        case("network", "reach_nobody", |w| {
            Box::pin(neighbours::reach_nobody(w))
        }),
        case("network", "forge_source", |w| {
            Box::pin(neighbours::forge_source(w))
        }),
        case("network", "host_loopback", |w| {
            Box::pin(neighbours::host_loopback(w))
        }),
        case("network", "no_network", |w| {
            Box::pin(neighbours::no_network(w))
        }),
        case("neighbours", "watch_dev", |w| {
            Box::pin(neighbours::watch_dev(w))
        }),
        case("neighbours", "hog_inotify", |w| {
            Box::pin(neighbours::hog_inotify(w))
        }),
        case("neighbours", "hog_ptys", |w| {
            Box::pin(neighbours::hog_ptys(w))
        }),
        case("bombs", "fork_bomb", |w| Box::pin(bombs::forks(w))),
        case("bombs", "memory_bomb", |w| Box::pin(bombs::memory(w))),
        case("bombs", "shm_bomb", |w| Box::pin(bombs::shared_memory(w))),
        case("bombs", "inode_bomb", |w| Box::pin(bombs::inodes(w))),
        case("bombs", "disk_bomb", |w| Box::pin(bombs::disk(w))),
        case("bombs", "fd_bomb", |w| Box::pin(bombs::descriptors(w))),
        case("bombs", "log_bomb", |w| Box::pin(bombs::log(w))),
        case("bombs", "netlink_hog", |w| Box::pin(resources::netlink(w))),
        case("bombs", "ping_hog", |w| Box::pin(resources::ping(w))),
        case("bombs", "tcp_memory", |w| {
            Box::pin(resources::socket_memory(w, "tcp_memory"))
        }),
        case("bombs", "udp_memory", |w| {
            Box::pin(resources::socket_memory(w, "udp_memory"))
        }),
        case("limits", "oom_order", |w| Box::pin(resources::oom_order(w))),
        case("limits", "default_files", |w| {
            Box::pin(resources::default_files(w))
        }),
        case("files", "host_path_privileges", |w| {
            Box::pin(resources::host_path_privileges(w))
        }),
        case("files", "host_path_of_root", |w| {
            Box::pin(resources::host_path_of_root(w))
        }),
        case("neighbours", "watch_programs", |w| {
            Box::pin(resources::watch_programs(w))
        }),
        case("neighbours", "lock_programs", |w| {
            Box::pin(resources::lock_programs(w))
        }),
        case("files", "leaked_directory", |w| {
            Box::pin(resources::leaked_directory(w))
        }),
        case("files", "local_settings", |w| {
            Box::pin(resources::local_settings(w))
        }),
    ]);
    cases.extend(against_policies());
    cases
}

/// Attempts to reach what a network policy does not allow.
fn against_policies() -> Vec<Case> {
    vec![
        case("egress", "egress_allowed", |w| {
            Box::pin(egress::what_a_policy_allows_works(w))
        }),
        case("egress", "egress_bypass", |w| {
            Box::pin(egress::a_policy_is_not_passed_by(w))
        }),
        case("egress", "egress_bypass_open", |w| {
            Box::pin(egress::the_attempts_succeed_without_a_policy(w))
        }),
        case("egress", "egress_never", |w| {
            Box::pin(egress::what_nobody_may_reach_no_rule_opens(w))
        }),
        case("egress", "egress_change", |w| {
            Box::pin(egress::a_change_cuts_what_it_does_not_allow(w))
        }),
        case("egress", "egress_gate_killed", |w| {
            Box::pin(egress::nothing_passes_without_a_gate(w))
        }),
    ]
}

fn case(
    class: &'static str,
    name: &'static str,
    run: impl for<'a> Fn(&'a World) -> Running<'a> + 'static,
) -> Case {
    Case {
        class,
        name,
        run: Box::new(run),
    }
}

async fn plain(world: &World, name: &str) -> Verdict {
    world.attack(&Setup::default(), &[name]).await.verdict()
}

async fn with_marker(world: &World, name: &str) -> Verdict {
    let marker = world.marker.display().to_string();
    world
        .attack(&Setup::default(), &[name, &marker])
        .await
        .verdict()
}

async fn token_hidden(world: &World) -> Verdict {
    let (front, back) = TOKEN.split_at(TOKEN.len() / 2);
    let words = ["token_hidden", front, back];
    world.attack(&Setup::default(), &words).await.verdict()
}

/// The table of mounts must not tell where the host keeps its files.
async fn mountinfo_clean(world: &World) -> Verdict {
    let data = world.data_dir().display().to_string();
    world
        .attack(&Setup::default(), &["mountinfo_clean", &data])
        .await
        .verdict()
}

async fn host_file_hidden(world: &World) -> Verdict {
    let marker = world.marker.display().to_string();
    let through_pid1 = format!("/proc/1/root{marker}");
    let through_self = format!("/proc/self/root/../../..{marker}");
    let data = world.data_dir().display().to_string();
    let words = ["hidden_paths", &marker, &through_pid1, &through_self, &data];
    world.attack(&Setup::default(), &words).await.verdict()
}
