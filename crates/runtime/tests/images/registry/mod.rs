//! A real registry on loopback, and images to fill it with.
//!
//! Nothing here leaves the machine: the registry is Debian's `docker-registry`, its storage a
//! temporary directory, its port one the kernel picked and its own log names.

pub(crate) mod image;
pub(crate) mod proxy;
pub(crate) mod token;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A user that a registry with [`Auth::Password`] lets in.
pub(crate) const USER: &str = "alice";
pub(crate) const PASSWORD: &str = "secret";
/// bcrypt of [`PASSWORD`]: the only kind of hash the registry reads.
const PASSWORD_HASH: &str = "$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a";

/// Whom a registry lets in.
pub(crate) enum Auth<'a> {
    Everyone,
    /// [`USER`] with [`PASSWORD`].
    Password,
    /// Whoever brings a token of this service.
    Token(&'a token::Service),
}

/// A running registry. Dropping it ends it.
pub(crate) struct Registry {
    process: Child,
    port: u16,
    storage: PathBuf,
    _directory: Option<tempfile::TempDir>,
}

impl Registry {
    /// An empty registry that lets everyone in.
    pub(crate) fn start() -> Self {
        Self::with_auth(&Auth::Everyone)
    }

    pub(crate) fn with_auth(auth: &Auth<'_>) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut registry = Self::over(directory.path(), auth);
        registry._directory = Some(directory);
        registry
    }

    /// A registry over storage that outlives it.
    pub(crate) fn over(directory: &Path, auth: &Auth<'_>) -> Self {
        let auth = match auth {
            Auth::Everyone => String::new(),
            Auth::Password => {
                let path = directory.join("htpasswd");
                std::fs::write(&path, format!("{USER}:{PASSWORD_HASH}\n")).expect("htpasswd");
                format!(
                    "auth: {{htpasswd: {{realm: test, path: {}}}}}\n",
                    path.display()
                )
            }
            Auth::Token(service) => service.registry_settings(),
        };
        Self::run(directory, "", &auth)
    }

    /// A registry that speaks TLS, with a certificate that [`Registry::authority`] vouches for.
    pub(crate) fn with_tls(directory: &Path) -> Self {
        let openssl =
            |arguments: &str| openssl(directory, &arguments.split(' ').collect::<Vec<_>>());
        openssl(
            "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=authority -keyout ca.key -out ca.pem",
        );
        openssl("req -newkey rsa:2048 -nodes -subj /CN=registry -keyout tls.key -out tls.csr");
        std::fs::write(directory.join("names"), "subjectAltName=IP:127.0.0.1\n").expect("a file");
        openssl(
            "x509 -req -in tls.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 1 -extfile names -out tls.pem",
        );
        let path = |name: &str| directory.join(name).display().to_string();
        let tls = format!(
            ", tls: {{certificate: {}, key: {}}}",
            path("tls.pem"),
            path("tls.key")
        );
        Self::run(directory, &tls, "")
    }

    /// The certificate of the authority behind a registry with TLS.
    pub(crate) fn authority(&self) -> PathBuf {
        self.storage.with_file_name("ca.pem")
    }

    fn run(directory: &Path, tls: &str, auth: &str) -> Self {
        let storage = directory.join("storage");
        let config = directory.join("config.yml");
        let text = format!(
            "version: 0.1\nlog: {{level: info, accesslog: {{disabled: true}}}}\n\
             storage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \"127.0.0.1:0\"{tls}}}\n{auth}",
            storage.display()
        );
        std::fs::write(&config, text).expect("the registry's configuration");
        let mut process = Command::new("docker-registry")
            .arg("serve")
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("these tests need a registry: apt-get install docker-registry");
        let stderr = process.stderr.take().expect("it was piped");
        let port = listening_port(stderr);
        Self {
            process,
            port,
            storage,
            _directory: None,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// `127.0.0.1:port`.
    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The file that holds a blob, for those who want to damage it.
    pub(crate) fn blob_file(&self, digest: &str) -> PathBuf {
        let hex = digest.strip_prefix("sha256:").expect("a digest");
        self.storage
            .join("docker/registry/v2/blobs/sha256")
            .join(&hex[..2])
            .join(hex)
            .join("data")
    }

    /// Ends the registry at once, as a crash would.
    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits for the line of the log that names the port, then lets the rest run into nothing.
fn listening_port(stderr: std::process::ChildStderr) -> u16 {
    let mut lines = BufReader::new(stderr).lines();
    let mut seen = Vec::new();
    let port = loop {
        let Some(Ok(line)) = lines.next() else {
            panic!(
                "the registry ended before it listened:\n{}",
                seen.join("\n")
            );
        };
        if let Some((_, rest)) = line.split_once("listening on 127.0.0.1:") {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            break digits.parse().expect("a port");
        }
        seen.push(line);
    };
    std::thread::spawn(move || lines.for_each(drop));
    port
}

fn openssl(directory: &Path, arguments: &[&str]) {
    let output = Command::new("openssl")
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("these tests need openssl: apt-get install openssl");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
