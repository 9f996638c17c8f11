//! The command line of the helper. The entrypoint of an image gives it; nothing is read elsewhere.

use std::net::SocketAddr;
use std::path::PathBuf;

pub const USAGE: &str = "\
usage: desktop [OPTIONS]

  --listen ADDRESS     serve here; may be given more than once (127.0.0.1:6080)
  --display NAME       the X server (:1)
  --vnc ADDRESS        the VNC server (127.0.0.1:5901)
  --page DIRECTORY     noVNC's page (/opt/opensandbox/novnc)
  --profile DIRECTORY  the profile of Chromium, started with --remote-debugging-port=0
                       (none: this image has no browser)
  --recordings DIRECTORY  where recordings go (/tmp/recordings)
  --help               this text
";

/// Everything the helper needs to know to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub listen: Vec<SocketAddr>,
    pub display: String,
    pub vnc: SocketAddr,
    pub page: PathBuf,
    pub profile: Option<PathBuf>,
    pub recordings: PathBuf,
}

/// Why the command line was not understood.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("help was asked for")]
    Help,
    #[error("unknown option {0}; desktop --help lists the options")]
    Unknown(String),
    #[error("option {0} needs a value")]
    MissingValue(String),
    #[error("option {option} wants an address such as 127.0.0.1:6080, not {given:?}")]
    BadAddress { option: String, given: String },
}

impl Default for Options {
    fn default() -> Self {
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Self {
            listen: vec![local(6080)],
            display: ":1".to_owned(),
            vnc: local(5901),
            page: "/opt/opensandbox/novnc".into(),
            profile: None,
            recordings: "/tmp/recordings".into(),
        }
    }
}

/// Reads `--name value` and `--name=value`.
pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Options, Error> {
    let mut options = Options::default();
    let mut listen = Vec::new();
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        let (name, given) = match argument.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (argument, None),
        };
        if name == "--help" {
            return Err(Error::Help);
        }
        const KNOWN: [&str; 6] = [
            "--listen",
            "--display",
            "--vnc",
            "--page",
            "--profile",
            "--recordings",
        ];
        if !KNOWN.contains(&name.as_str()) {
            return Err(Error::Unknown(name));
        }
        let value = given
            .or_else(|| arguments.next())
            .ok_or_else(|| Error::MissingValue(name.clone()))?;
        let address = || {
            value.parse().map_err(|_| Error::BadAddress {
                option: name.clone(),
                given: value.clone(),
            })
        };
        match name.as_str() {
            "--listen" => listen.push(address()?),
            "--vnc" => options.vnc = address()?,
            "--display" => options.display = value,
            "--page" => options.page = value.into(),
            "--profile" => options.profile = Some(value.into()),
            _ => options.recordings = value.into(),
        }
    }
    if !listen.is_empty() {
        options.listen = listen;
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options, Error> {
        super::parse(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn every_option_is_read_or_refused() {
        assert_eq!(parse("").unwrap(), Options::default());
        let options = parse(
            "--listen 127.0.0.1:1 --listen=[::1]:2 --display :9 --vnc 127.0.0.1:3 --profile /p",
        )
        .unwrap();
        assert_eq!(options.listen.len(), 2);
        assert_eq!((options.display.as_str(), options.vnc.port()), (":9", 3));
        assert_eq!(options.profile, Some(PathBuf::from("/p")));
        assert_eq!(parse("--help"), Err(Error::Help));
        assert_eq!(
            parse("--colour red"),
            Err(Error::Unknown("--colour".to_owned()))
        );
        assert_eq!(
            parse("--page"),
            Err(Error::MissingValue("--page".to_owned()))
        );
        assert!(matches!(
            parse("--listen here"),
            Err(Error::BadAddress { .. })
        ));
    }
}
