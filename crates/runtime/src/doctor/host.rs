//! Disk, network and the programs beside us.

use std::fs;
use std::io::Read;
use std::path::Path;

use rustix::fs::XattrFlags;

use super::{Check, Section, Settings};
use crate::net;

/// An image of a common language is about a gigabyte unpacked; less than this is soon full.
const DISK_WANTED_BYTES: u64 = 2 << 30;

/// The directory itself, or the nearest one above it that exists.
pub(super) fn nearest_existing(dir: &Path) -> &Path {
    dir.ancestors()
        .find(|path| path.is_dir())
        .unwrap_or(Path::new("/"))
}

pub(super) fn disk(settings: &Settings) -> Section {
    let dir = nearest_existing(&settings.data_dir);
    let mut checks = vec![space(dir)];
    match tempfile_in(dir) {
        Ok(probe) => {
            checks.push(overlay_attributes(&probe));
            checks.push(reflink(dir, &probe));
        }
        Err(error) => {
            let detail = format!("{} is not writable: {error}", dir.display());
            checks.push(Check::failed("data directory", detail).mended_by(format!(
                "install -d -m 0700 {}, as the user the server runs as",
                settings.data_dir.display()
            )));
        }
    }
    checks.push(disk_limits());
    Section {
        name: "disk",
        checks,
    }
}

fn space(dir: &Path) -> Check {
    match rustix::fs::statvfs(dir) {
        Ok(found) => {
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            let detail = format!("{:.1} GiB free at {}", gib(free), dir.display());
            if free < DISK_WANTED_BYTES {
                Check::degraded("space", format!("{detail}; images may not fit"))
                    .mended_by("free some, or name another data directory")
            } else {
                Check::ok("space", detail)
            }
        }
        Err(errno) => Check::failed("space", format!("{}: {errno}", dir.display())),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "shown with one digit after the point"
)]
fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// A file that is gone when it is closed, for trying things on.
fn tempfile_in(dir: &Path) -> Result<fs::File, rustix::io::Errno> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR).map(fs::File::from)
}

/// Overlay keeps its notes in `trusted` attributes of the writable layer.
fn overlay_attributes(probe: &fs::File) -> Check {
    match rustix::fs::fsetxattr(probe, "trusted.osb", b"y", XattrFlags::empty()) {
        Ok(()) => Check::ok("attributes", "trusted extended attributes work"),
        Err(errno) => Check::failed(
            "attributes",
            format!("no trusted extended attributes: {errno}"),
        )
        .mended_by("put the data directory on ext4, xfs or btrfs, and run as root"),
    }
}

fn reflink(dir: &Path, probe: &fs::File) -> Check {
    let cloned = tempfile_in(dir).and_then(|copy| rustix::fs::ioctl_ficlone(&copy, probe));
    match cloned {
        Ok(()) => Check::ok("reflink", "files are copied without copying their data"),
        Err(_) => Check::note(
            "reflink",
            "not on this filesystem: the first write to a large image file copies all of it; xfs \
             and btrfs avoid that",
        ),
    }
}

fn disk_limits() -> Check {
    match crate::sandbox::disk_image::DiskImages::find() {
        Ok(_) => Check::ok(
            "disk limits",
            "a sandbox with a limit gets a filesystem of its own",
        ),
        Err(why) => {
            Check::degraded("disk limits", "sandboxes that ask for one are refused").mended_by(why)
        }
    }
}

pub(super) fn network(settings: &Settings) -> Section {
    let mut checks = vec![forwarding()];
    match net::examine(&settings.network) {
        Ok(found) => {
            checks.push(Check::ok(
                "netlink",
                "links, routes and nftables can be read",
            ));
            checks.push(conflicts(settings, &found.conflicts));
            checks.push(forward_drops(settings, &found.forward_drops));
            checks.push(private_networks(&settings.network));
            checks.push(if found.needs_relay {
                Check::note(
                    "DNS",
                    "the host's nameservers are out of sandboxes' reach: the server relays",
                )
            } else {
                Check::ok("DNS", "sandboxes ask the host's nameservers")
            });
        }
        Err(error) => {
            let detail = api::error_chain(&error).to_string();
            checks.push(Check::failed("netlink", detail).mended_by("modprobe nf_tables"));
        }
    }
    Section {
        name: "network",
        checks,
    }
}

fn forwarding() -> Check {
    match fs::read_to_string("/proc/sys/net/ipv4/ip_forward")
        .as_deref()
        .map(str::trim)
    {
        Ok("0") => Check::note("forwarding", "is off; the server turns IPv4 forwarding on"),
        Ok(_) => Check::ok("forwarding", "is on"),
        Err(error) => Check::failed("forwarding", format!("cannot be read: {error}")),
    }
}

fn conflicts(settings: &Settings, found: &[(String, String)]) -> Check {
    let pool = settings.network.addresses;
    let slots = pool.slots().min(settings.network.id_ranges);
    if found.is_empty() {
        return Check::ok("addresses", format!("{pool}, room for {slots} sandboxes"));
    }
    let list: Vec<String> = found
        .iter()
        .map(|(route, link)| format!("{route} on {link}"))
        .collect();
    Check::failed(
        "addresses",
        format!("{pool} overlaps with {}", list.join(", ")),
    )
    .mended_by("give the server another address pool, for example 10.201.0.0/16")
}

fn forward_drops(settings: &Settings, found: &[String]) -> Check {
    let prefix = &settings.network.prefix;
    if found.is_empty() {
        return Check::ok(
            "firewall",
            "nothing else stands between sandboxes and the outside",
        );
    }
    Check::degraded(
        "firewall",
        format!("{} drops what it does not know, so sandboxes do not reach the outside", found.join(", ")),
    )
    .mended_by(format!(
        "iptables -I FORWARD -i {prefix}-+ -j ACCEPT; iptables -I FORWARD -o {prefix}-+ -m conntrack \
         --ctstate ESTABLISHED,RELATED -j ACCEPT"
    ))
}

fn private_networks(network: &net::Config) -> Check {
    if network.private.is_empty() {
        return Check::ok(
            "private networks",
            "sandboxes reach none (10.0.0.0/8, 192.168.0.0/16 and the like) but the nameservers there; \
             egress.private_networks opens them",
        );
    }
    let open: Vec<String> = network
        .private
        .iter()
        .map(|(address, length)| format!("{address}/{length}"))
        .collect();
    Check::note(
        "private networks",
        format!(
            "sandboxes reach {} (egress.private_networks)",
            open.join(", ")
        ),
    )
}

pub(super) fn programs(settings: &Settings) -> Section {
    Section {
        name: "programs",
        checks: vec![execd(&settings.execd)],
    }
}

/// execd must run where there is no loader and no library.
fn execd(path: &Path) -> Check {
    const ELF: &[u8] = b"\x7fELF";
    let mend = "install execd beside osb, or build it: cargo build --release -p execd";
    let mut file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) => {
            return Check::failed("execd", format!("{}: {error}", path.display())).mended_by(mend);
        }
    };
    let mut bytes = Vec::new();
    // The program headers are within the first page.
    let _ = file.by_ref().take(4_096).read_to_end(&mut bytes);
    if !bytes.starts_with(ELF) {
        return Check::failed("execd", format!("{} is not a program", path.display()))
            .mended_by(mend);
    }
    if has_interpreter(&bytes) {
        let detail = format!(
            "{} is linked dynamically and runs in few images",
            path.display()
        );
        return Check::failed("execd", detail).mended_by(mend);
    }
    Check::ok("execd", format!("{}, static", path.display()))
}

/// Whether a 64-bit little-endian program asks for a loader; see elf(5).
fn has_interpreter(bytes: &[u8]) -> bool {
    const PT_INTERP: u32 = 3;
    let number = |at: usize, len: usize| {
        let slice = bytes.get(at..at + len)?;
        Some(
            slice
                .iter()
                .rev()
                .fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte)),
        )
    };
    let (Some(start), Some(size), Some(count)) = (number(32, 8), number(54, 2), number(56, 2))
    else {
        return false;
    };
    (0..count).any(|i| number(start + i * size, 4) == Some(PT_INTERP as usize))
}
