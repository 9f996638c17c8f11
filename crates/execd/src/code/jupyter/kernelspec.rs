//! Which kernels the image has: directories with a `kernel.json`, in the places where Jupyter
//! looks for them.
//!
//! Read anew each time, because a kernel may be installed while the sandbox runs. A file that
//! cannot be understood is passed over and told of in the log.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use crate::path::{Environment, variable};

/// Where kernels of the system are, after those of the user.
const SYSTEM: [&str; 2] = ["/usr/local/share/jupyter", "/usr/share/jupyter"];

/// A `kernel.json` is some hundred bytes.
const FILE_BYTES: u64 = 256 * 1024;

/// Directories that are looked into at one place.
const KERNELS_MAX: usize = 256;

/// How a kernel wants to be told to stop what it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::code) enum InterruptMode {
    #[default]
    Signal,
    Message,
}

/// A kernel as its directory describes it.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::code) struct Kernelspec {
    /// The directory's name.
    pub(in crate::code) name: String,
    pub(in crate::code) language: String,
    pub(super) interrupt_mode: InterruptMode,
    argv: Vec<String>,
    env: BTreeMap<String, String>,
    directory: PathBuf,
}

#[derive(Deserialize)]
struct File {
    argv: Vec<String>,
    #[serde(default)]
    language: String,
    #[serde(default)]
    interrupt_mode: InterruptMode,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// All kernels that were found, the preferred first.
pub(in crate::code) struct Kernelspecs(Vec<Arc<Kernelspec>>);

impl Kernelspecs {
    /// Looks through the search path. Blocks on the disk.
    pub(in crate::code) fn look(environment: &Environment) -> Self {
        let mut found: Vec<Arc<Kernelspec>> = Vec::new();
        for place in search_path(environment) {
            for kernel in kernels_in(&place) {
                // The same name further down the path is hidden, as it is for Jupyter.
                if !found.iter().any(|other| other.name == kernel.name) {
                    found.push(Arc::new(kernel));
                }
            }
        }
        Self(found)
    }

    /// The kernel of that name; else the first whose language that is.
    pub(in crate::code) fn find(&self, language: &str) -> Option<Arc<Kernelspec>> {
        let named = |kernel: &&Arc<Kernelspec>| kernel.name.eq_ignore_ascii_case(language);
        let speaks = |kernel: &&Arc<Kernelspec>| kernel.language.eq_ignore_ascii_case(language);
        let found = self.0.iter().find(named);
        found.or_else(|| self.0.iter().find(speaks)).cloned()
    }

    /// Names to choose from.
    pub(in crate::code) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|kernel| kernel.name.as_str())
    }
}

impl Kernelspec {
    pub(in crate::code) fn program(&self) -> &str {
        self.argv.first().map_or("", String::as_str)
    }

    /// The command that starts it.
    pub(super) fn command(&self, connection_file: &Path) -> Vec<OsString> {
        let file = connection_file.to_string_lossy();
        let directory = self.directory.to_string_lossy();
        let fill = |word: &String| {
            word.replace("{connection_file}", &file)
                .replace("{resource_dir}", &directory)
                .into()
        };
        self.argv.iter().map(fill).collect()
    }

    /// Lays the kernel's own variables over the sandbox's; `${NAME}` in them means the latter.
    pub(in crate::code) fn environment(&self, mut environment: Environment) -> Environment {
        let outer = environment.clone();
        for (name, value) in &self.env {
            environment.set(name, expand(value, &outer));
        }
        environment
    }
}

/// Jupyter's order: `JUPYTER_PATH`, then the user's, then the system's.
fn search_path(environment: &Environment) -> Vec<PathBuf> {
    let listed = environment.get("JUPYTER_PATH").unwrap_or_default();
    let user = match (environment.get("JUPYTER_DATA_DIR"), environment.get("HOME")) {
        (Some(data), _) => Some(PathBuf::from(data)),
        (None, Some(home)) => Some(Path::new(home).join(".local/share/jupyter")),
        (None, None) => None,
    };
    std::env::split_paths(listed)
        .filter(|path| path.is_absolute())
        .chain(user)
        .chain(SYSTEM.map(PathBuf::from))
        .map(|path| path.join("kernels"))
        .collect()
}

/// In the order of their names, so that the same image always gives the same kernel.
fn kernels_in(place: &Path) -> Vec<Kernelspec> {
    let Ok(entries) = std::fs::read_dir(place) else {
        return Vec::new();
    };
    let mut directories: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .take(KERNELS_MAX)
        .collect();
    directories.sort();
    directories.into_iter().filter_map(read).collect()
}

fn read(directory: PathBuf) -> Option<Kernelspec> {
    let path = directory.join("kernel.json");
    let mut bytes = Vec::new();
    std::fs::File::open(&path)
        .ok()?
        .take(FILE_BYTES)
        .read_to_end(&mut bytes)
        .ok()?;
    let file: File = match serde_json::from_slice(&bytes) {
        Ok(file) => file,
        Err(error) => {
            tracing::warn!(path = %path.display(), error = %api::error_chain(&error), "a kernelspec is not understood and passed over");
            return None;
        }
    };
    Some(Kernelspec {
        name: directory.file_name()?.to_str()?.to_owned(),
        language: file.language,
        interrupt_mode: file.interrupt_mode,
        argv: file.argv,
        env: file.env,
        directory,
    })
}

/// A variable that is not set stays as it is written, as Jupyter leaves it.
fn expand(text: &str, environment: &Environment) -> OsString {
    let mut out = OsString::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        let (before, after_dollar) = (&rest[..dollar], &rest[dollar + 1..]);
        out.push(before);
        let known =
            variable(after_dollar).and_then(|(name, after)| Some((environment.get(name)?, after)));
        rest = match known {
            Some((value, after)) => {
                out.push(value);
                after
            }
            None => {
                out.push("$");
                after_dollar
            }
        };
    }
    out.push(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        let mut environment = Environment::default();
        for (name, value) in pairs {
            environment.set(*name, *value);
        }
        environment
    }

    fn install(root: &Path, name: &str, text: &str) {
        let directory = root.join("kernels").join(name);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("kernel.json"), text).unwrap();
    }

    #[test]
    fn finds_by_name_then_by_language_in_the_order_of_the_path() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        install(
            first.path(),
            "rx",
            r#"{"argv": ["first"], "language": "R"}"#,
        );
        install(first.path(), "broken", "{");
        install(
            second.path(),
            "rx",
            r#"{"argv": ["hidden"], "language": "R"}"#,
        );
        install(second.path(), "a", r#"{"argv": ["a"], "language": "R"}"#);
        install(
            second.path(),
            "r",
            r#"{"argv": ["named"], "language": "other"}"#,
        );
        let path = format!("{}:{}", first.path().display(), second.path().display());
        let home = first.path().join("no-home");
        let found = Kernelspecs::look(&environment(&[
            ("JUPYTER_PATH", &path),
            ("HOME", home.to_str().unwrap()),
        ]));
        assert_eq!(found.find("R").unwrap().program(), "named");
        assert_eq!(found.find("rx").unwrap().program(), "first");
        assert_eq!(found.find("OTHER").unwrap().name, "r");
        assert!(found.find("broken").is_none());
        assert!(found.names().any(|name| name == "a"));
    }

    #[test]
    fn says_how_to_start_and_to_interrupt() {
        let root = tempfile::tempdir().unwrap();
        let text = r#"{"argv": ["run", "{resource_dir}/k.jar", "-f={connection_file}"],
            "language": "x", "interrupt_mode": "message", "display_name": "X",
            "env": {"A": "${B}/bin:$NOPE", "C": "plain"}, "metadata": {"debugger": true}}"#;
        install(root.path(), "x", text);
        let kernel = read(root.path().join("kernels/x")).unwrap();
        assert_eq!(kernel.interrupt_mode, InterruptMode::Message);
        let jar = root.path().join("kernels/x/k.jar");
        assert_eq!(
            kernel.command(Path::new("/tmp/c.json")),
            ["run", jar.to_str().unwrap(), "-f=/tmp/c.json"].map(OsString::from),
        );
        let environment = kernel.environment(environment(&[("B", "/b"), ("C", "old")]));
        assert_eq!(environment.get("A").unwrap(), "/b/bin:$NOPE");
        assert_eq!(environment.get("C").unwrap(), "plain");
    }
}
