//! Commands that carry bytes between this machine and a sandbox.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use crate::duration;

/// `osb cp`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "One side is a path here, the other SANDBOX:PATH, or both are in sandboxes. Copying to a directory that \
                  is there puts the copy into it; a source that ends in /. copies only what the \
                  directory holds. - is standard input or output, as a tar stream with -r."
)]
pub struct Cp {
    /// From: PATH or SANDBOX:PATH.
    pub source: String,
    /// To: PATH or SANDBOX:PATH.
    pub destination: String,
    /// Copy directories with all they hold.
    #[arg(short, long)]
    pub recursive: bool,
    /// Show no progress.
    #[arg(short, long)]
    pub quiet: bool,
}

/// `osb port-forward`.
#[derive(Debug, Clone, Args)]
pub struct PortForward {
    /// The sandbox: its name, its id, or the beginning of that.
    pub sandbox_id: String,
    /// Ports: 8080, LOCAL:REMOTE, or :REMOTE for any free one here.
    #[arg(required = true, value_name = "[LOCAL:]REMOTE")]
    pub ports: Vec<Ports>,
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    pub address: IpAddr,
}

/// `osb url`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The link is good for once and for ten minutes; the browser that opens it is let in \
                  until --for has passed. Needs a server with an ingress gateway."
)]
pub struct Url {
    /// The sandbox's id.
    pub sandbox_id: String,
    /// The port inside.
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// How long the browser is let in, such as 30m; the server's own when left out.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    pub lifetime: Option<Duration>,
}

/// A port here and a port there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// Here; 0 is any free one.
    pub local: u16,
    /// There.
    pub remote: u16,
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("'{text}' is not PORT, LOCAL:REMOTE or :REMOTE, each from 1 to 65535");
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
        let (local, remote) = match text.split_once(':') {
            Some(("", remote)) => (Some(0), port(remote)),
            Some((local, remote)) => (port(local), port(remote)),
            None => (port(text), port(text)),
        };
        match (local, remote) {
            (Some(local), Some(remote)) => Ok(Self { local, remote }),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_as_written() {
        let ports = |local, remote| Ok(Ports { local, remote });
        assert_eq!("80".parse(), ports(80, 80));
        assert_eq!("8080:80".parse(), ports(8080, 80));
        assert_eq!(":80".parse(), ports(0, 80));
        for text in ["", "0", "80:", "80:0", "x", "1:2:3", "65536"] {
            assert!(text.parse::<Ports>().is_err(), "{text}");
        }
    }
}
