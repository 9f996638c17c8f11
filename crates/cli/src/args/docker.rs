//! What `docker run` lets people write, read as it is meant there: ports, mounts, memory, variables.
//!
//! Says what was written, not what is done with it. What has no counterpart here is refused with
//! what to use instead (`instead`).

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use api::volume::{Host, Pvc, Volume};

use super::Pair;

/// `-p`: a port of the sandbox, and where it is reached on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish {
    /// The address here. Docker's is every address; ours is this machine alone, unless another is
    /// named.
    pub address: IpAddr,
    /// The port here; 0 is any free one.
    pub local: u16,
    /// The port in the sandbox.
    pub remote: u16,
}

impl FromStr for Publish {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is not PORT, HOST_PORT:PORT or ADDRESS:HOST_PORT:PORT (TCP, one port)"
            )
        };
        let plain = match text.rsplit_once('/') {
            Some((plain, "tcp")) => plain,
            Some((_, "udp")) => return Err(format!("'{text}': only TCP ports are forwarded")),
            Some(_) => return Err(wrong()),
            None => text,
        };
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
        let (rest, remote) = match plain.rsplit_once(':') {
            Some((rest, remote)) => (rest, remote),
            None => ("", plain),
        };
        let remote = port(remote).ok_or_else(wrong)?;
        let (address, local) = match rest.rsplit_once(':') {
            Some((address, local)) => (Some(address), local),
            None => (None, rest),
        };
        let local = match local {
            "" => 0,
            local => port(local).ok_or_else(wrong)?,
        };
        let address = match address {
            Some(address) => {
                let bare = address.trim_start_matches('[').trim_end_matches(']');
                bare.parse().map_err(|_| wrong())?
            }
            None => IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        Ok(Self {
            address,
            local,
            remote,
        })
    }
}

/// `-v` and `--mount`: a volume or a directory of the server's machine, and where it is put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    source: Source,
    target: String,
    is_read_only: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Directory(PathBuf),
    Volume(String),
}

/// Where a path that is not absolute begins.
fn absolute(path: &str) -> Result<PathBuf, String> {
    let expanded = match path.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            let home = std::env::var("HOME").map_err(|_| "~ needs HOME to be set".to_owned())?;
            PathBuf::from(home).join(rest.trim_start_matches('/'))
        }
        _ => PathBuf::from(path),
    };
    // What is there is named without detours; what is not is for the server to refuse.
    let from_here = std::path::absolute(&expanded).map_err(|error| error.to_string())?;
    Ok(std::fs::canonicalize(&from_here).unwrap_or(from_here))
}

impl Mount {
    fn new(source: &str, target: &str, is_read_only: bool) -> Result<Self, String> {
        if !target.starts_with('/') {
            return Err(format!("'{target}' is not an absolute path in the sandbox"));
        }
        let source = if source.starts_with(['/', '.', '~']) {
            Source::Directory(absolute(source)?)
        } else if source.contains('/') {
            return Err(format!(
                "'{source}' is neither the name of a volume nor a path; write a path as ./{source}"
            ));
        } else {
            Source::Volume(source.to_owned())
        };
        Ok(Self {
            source,
            target: target.to_owned(),
            is_read_only,
        })
    }

    /// `-v SOURCE:TARGET[:ro]`.
    pub fn from_volume_flag(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let (source, target, options) = match parts.as_slice() {
            [target] if target.starts_with('/') => {
                return Err(format!(
                    "'{text}': volumes here have names: -v NAME:{target}"
                ));
            }
            [source, target] => (source, target, ""),
            [source, target, options] => (source, target, *options),
            _ => return Err(format!("'{text}' is not SOURCE:TARGET or SOURCE:TARGET:ro")),
        };
        let is_read_only = match options {
            "" | "rw" => false,
            "ro" => true,
            other => {
                return Err(format!(
                    "'{other}' is no option of a mount here; there are ro and rw"
                ));
            }
        };
        Self::new(source, target, is_read_only)
    }

    /// `--mount type=bind,source=PATH,target=PATH,readonly`.
    pub fn from_mount_flag(text: &str) -> Result<Self, String> {
        let (mut kind, mut source, mut target, mut is_read_only) = ("volume", "", "", false);
        for part in text.split(',') {
            match part.split_once('=').unwrap_or((part, "true")) {
                ("type", value) => kind = value,
                ("source" | "src", value) => source = value,
                ("target" | "dst" | "destination", value) => target = value,
                ("readonly" | "ro", value) => is_read_only = matches!(value, "true" | "1"),
                (other, _) => {
                    return Err(format!(
                        "'{other}' is no part of a mount here; there are type, source, target and \
                         readonly"
                    ));
                }
            }
        }
        if source.is_empty() {
            return Err(format!("'{text}' has no source"));
        }
        match kind {
            "bind" => {
                let path = match source.starts_with(['/', '.', '~']) {
                    true => source.to_owned(),
                    false => format!("./{source}"),
                };
                Self::new(&path, target, is_read_only)
            }
            "volume" if source.contains('/') => Err(format!(
                "'{source}' is not the name of a volume; a directory is type=bind"
            )),
            "volume" => Self::new(source, target, is_read_only),
            other => Err(format!(
                "there are no mounts of type {other}; there are bind and volume"
            )),
        }
    }

    /// As the protocol has it; `number` sets it apart from the sandbox's other mounts.
    pub fn volume(&self, number: usize) -> Volume {
        let mut volume = Volume {
            name: format!("mount-{number}"),
            mount_path: self.target.clone(),
            read_only: self.is_read_only,
            ..Volume::default()
        };
        match &self.source {
            Source::Directory(path) => {
                let path = path.to_string_lossy().into_owned();
                volume.host = Some(Host { path });
            }
            Source::Volume(name) => {
                volume.pvc = Some(Pvc {
                    claim_name: name.clone(),
                    create_if_not_exists: true,
                    delete_on_sandbox_termination: false,
                    storage_class: None,
                    storage: None,
                    access_modes: None,
                });
            }
        }
        volume
    }
}

/// `-e`: `KEY=VALUE`, or `KEY` for the value that it has here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable(String);

impl FromStr for Variable {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split('=').next() {
            None | Some("") => Err(format!("expected KEY=VALUE or KEY, got '{text}'")),
            Some(_) => Ok(Self(text.to_owned())),
        }
    }
}

impl Variable {
    /// The pair; nothing for one that is to have the value it has here, and has none.
    pub fn pair(&self) -> Option<Pair> {
        if let Ok(pair) = self.0.parse() {
            return Some(pair);
        }
        let value = std::env::var(&self.0).ok()?;
        Some(Pair {
            key: self.0.clone(),
            value,
        })
    }
}

/// The variables of a file for `--env-file`: one a line, `#` begins a comment line, nothing is
/// quoted; as Docker reads them.
pub fn env_file(path: &Path) -> Result<Vec<Variable>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let lines = text.lines().map(str::trim_start);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(Variable::from_str)
        .collect()
}

/// `-m`: an amount of memory, as Docker writes it (512m, 2g), as a quantity of the protocol.
pub fn memory(text: &str) -> Result<String, String> {
    if text.contains('=') {
        return Err("memory, as with docker run; a label is -l KEY=VALUE".to_owned());
    }
    let lower = text.to_lowercase();
    let number = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match lower[number.len()..]
        .trim_end_matches('b')
        .trim_end_matches('i')
    {
        "" => "",
        "k" => "Ki",
        "m" => "Mi",
        "g" => "Gi",
        "t" => "Ti",
        _ => {
            return Err(format!(
                "'{text}' is no amount of memory, such as 512m or 2g"
            ));
        }
    };
    match number.parse::<f64>() {
        Ok(amount) if amount > 0.0 && amount.is_finite() => Ok(format!("{number}{unit}")),
        _ => Err(format!(
            "'{text}' is no amount of memory, such as 512m or 2g"
        )),
    }
}

/// `--cpus`: processors, such as 0.5, as a quantity of the protocol.
pub fn cpus(text: &str) -> Result<String, String> {
    match text.parse::<f64>() {
        Ok(count) if count > 0.0 && count <= 100_000.0 => {
            // In thousandths, because a quantity of less is none.
            Ok(format!("{}m", (count * 1000.0).round().max(1.0)))
        }
        _ => Err(format!(
            "'{text}' is no number of processors, such as 1 or 0.5"
        )),
    }
}

/// `--network`: whether there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// As the server gives every sandbox.
    Default,
    /// Nothing can be reached.
    None,
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "bridge" | "default" => Ok(Self::Default),
            "none" => Ok(Self::None),
            "host" => Err(
                "a sandbox never shares this machine's network; reach its ports with \
                           -p HOST_PORT:PORT"
                    .to_owned(),
            ),
            _ => Err(
                "there are none and bridge; sandboxes do not share networks, reach a port \
                      of one with -p or `osb port-forward`"
                    .to_owned(),
            ),
        }
    }
}

/// `-u`: whoever the command runs as; names are looked up in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// A name or a number.
    pub user: String,
    /// A name or a number; the user's own group otherwise.
    pub group: Option<String>,
}

impl FromStr for User {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group.to_owned())),
            None => (text, None),
        };
        if user.is_empty() || group.as_deref() == Some("") {
            return Err(format!("'{text}' is not USER or USER:GROUP"));
        }
        Ok(Self {
            user: user.to_owned(),
            group,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_as_docker_does_but_stay_on_this_machine() {
        let publish = |text: &str| {
            let found: Publish = text.parse()?;
            Ok::<_, String>((found.address.to_string(), found.local, found.remote))
        };
        let here = |local, remote| Ok(("127.0.0.1".to_owned(), local, remote));
        assert_eq!(publish("8080:80"), here(8080, 80));
        assert_eq!(publish("80"), here(0, 80));
        assert_eq!(publish("8080:80/tcp"), here(8080, 80));
        assert_eq!(publish("127.0.0.1::80"), here(0, 80));
        assert_eq!(
            publish("0.0.0.0:8080:80"),
            Ok(("0.0.0.0".to_owned(), 8080, 80))
        );
        assert_eq!(publish("[::1]:8080:80"), Ok(("::1".to_owned(), 8080, 80)));
        for text in ["", "x", "0", "80:", "1-5:1-5", "80/udp", "a:1:2", "70000"] {
            assert!(publish(text).is_err(), "{text}");
        }
    }

    #[test]
    fn mounts_are_volumes_by_name_and_directories_by_path() {
        let volume = Mount::from_volume_flag("data:/data:ro").unwrap().volume(1);
        assert_eq!(volume.pvc.unwrap().claim_name, "data");
        assert!(volume.read_only);
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        for text in [".:/src", "type=bind,source=.,target=/src"] {
            let mount = match text.starts_with("type") {
                true => Mount::from_mount_flag(text),
                false => Mount::from_volume_flag(text),
            };
            let volume = mount.unwrap().volume(1);
            assert_eq!(volume.host.unwrap().path, here.to_string_lossy(), "{text}");
            assert_eq!(volume.mount_path, "/src");
        }
        for text in ["/data", "a:b", "data:/data:z", "a/b:/c", "", "a:/b:ro:x"] {
            assert!(Mount::from_volume_flag(text).is_err(), "{text}");
        }
        for text in [
            "type=tmpfs,target=/x",
            "target=/x",
            "source=a,target=/x,x=1",
            "source=a/b,target=/x",
        ] {
            assert!(Mount::from_mount_flag(text).is_err(), "{text}");
        }
    }

    #[test]
    fn amounts_are_quantities() {
        for (text, quantity) in [
            ("512m", "512Mi"),
            ("2g", "2Gi"),
            ("1024k", "1024Ki"),
            ("1.5G", "1.5Gi"),
            ("64MB", "64Mi"),
            ("1048576", "1048576"),
        ] {
            assert_eq!(memory(text).as_deref(), Ok(quantity));
        }
        for text in ["", "m", "x=1", "12q", "-1m"] {
            assert!(memory(text).is_err(), "{text}");
        }
        assert_eq!(cpus("1.5").as_deref(), Ok("1500m"));
        assert_eq!(cpus("0.0001").as_deref(), Ok("1m"));
        assert!(cpus("0").is_err() && cpus("x").is_err());
    }

    #[test]
    fn a_network_is_there_or_not() {
        assert!("host".parse::<Network>().unwrap_err().contains("-p"));
    }
}
