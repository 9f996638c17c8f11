//! Reading configurations from real files.

use secrecy::{ExposeSecret as _, SecretString};

use super::*;
use crate::section;

section! {
    /// Where to listen.
    struct Server {
        /// The address.
        host: String = "127.0.0.1".to_owned(),
        /// The port.
        port: u16 = 8080,
        /// The key.
        api_key: Option<SecretString> = None,
        /// The limits.
        limits: Limits = Limits::default(),
    }

    /// Limits.
    struct Limits {
        /// Connections.
        connections: u32 = 10,
    }

    /// What makes sandboxes.
    struct Runtime {
        /// Which.
        kind as "type": String = "embedded".to_owned(),
        /// Names.
        names: Vec<String> = Vec::new(),
    }

    /// All of it.
    struct Config {
        /// Where to listen.
        server: Server = Server::default(),
        /// What makes sandboxes.
        runtime: Runtime = Runtime::default(),
    }
}

struct Setup {
    directory: tempfile::TempDir,
    sources: Sources,
}

impl Setup {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().to_str().unwrap().to_owned();
        let sources = Sources {
            flag: None,
            path_variable: "SANDBOX_CONFIG_PATH",
            home_file: ".sandbox.toml",
            variable_prefix: "OPENSANDBOX_",
            foreign: &["OPENSANDBOX_RUNTIME_"],
            without_meaning: &[
                WithoutMeaning {
                    path: "server.loop",
                    verdict: Verdict::Unused,
                    why: "no loops",
                },
                WithoutMeaning {
                    path: "cluster",
                    verdict: Verdict::Refused,
                    why: "one machine",
                },
                WithoutMeaning {
                    path: "otel.enabled",
                    verdict: Verdict::RefusedUnless("false"),
                    why: "scrape /metrics",
                },
            ],
            environment: [("HOME".to_owned(), home)].into(),
            flags: Vec::new(),
        };
        Self { directory, sources }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.sources.environment.insert(name.into(), value.into());
        self
    }

    fn load(&self) -> Result<Loaded<Config>, Problems> {
        load(&self.sources, |_: &Config, _| {})
    }

    fn problems(&self, text: &str) -> Vec<String> {
        self.file(".sandbox.toml", text);
        let home = self.directory.path().to_str().unwrap();
        let all = self.load().unwrap_err();
        all.iter()
            .map(|problem| problem.replace(&format!("{home}/"), ""))
            .collect()
    }
}

#[test]
fn nothing_at_all_gives_the_defaults() {
    let loaded = Setup::new().load().unwrap();
    assert_eq!(
        (&*loaded.settings.server.host, loaded.settings.server.port),
        ("127.0.0.1", 8080)
    );
    assert_eq!((loaded.file, loaded.changed), (None, vec![]));
}

#[test]
fn a_flag_names_the_file_before_the_variable_and_the_variable_before_the_home() {
    let mut setup = Setup::new();
    setup.file(".sandbox.toml", "server.port = 1");
    assert_eq!(setup.load().unwrap().settings.server.port, 1);
    let by_variable = setup.file("variable.toml", "server.port = 2");
    setup = setup.variable("SANDBOX_CONFIG_PATH", by_variable.to_str().unwrap());
    assert_eq!(setup.load().unwrap().settings.server.port, 2);
    setup.sources.flag = Some(setup.file("flag.toml", "server.port = 3"));
    let loaded = setup.load().unwrap();
    assert_eq!(
        (loaded.settings.server.port, loaded.file),
        (3, setup.sources.flag.clone())
    );

    setup.sources.flag = Some("/nowhere/at/all.toml".into());
    assert!(
        setup
            .load()
            .unwrap_err()
            .to_string()
            .contains("/nowhere/at/all.toml")
    );
}

#[test]
fn the_environment_overrides_the_file_and_a_flag_overrides_both() {
    let mut setup = Setup::new().variable("OPENSANDBOX_SERVER_PORT", "2");
    setup = setup.variable("OPENSANDBOX_SERVER_API_KEY", "12345");
    setup = setup.variable("OPENSANDBOX_RUNTIME_TYPE", "docker");
    setup = setup.variable("OPENSANDBOX_SERVER_LIMITS_CONNECTIONS", "7");
    setup = setup.variable("OPENSANDBOX_RUNTIME_NAMES", r#"["a", "b"]"#);
    setup.file(".sandbox.toml", "[server]\nport = 1\nhost = '::1'");
    let settings = setup.load().unwrap().settings;
    assert_eq!((&*settings.server.host, settings.server.port), ("::1", 2));
    assert_eq!(settings.server.api_key.unwrap().expose_secret(), "12345");
    assert_eq!(
        (&*settings.runtime.kind, settings.server.limits.connections),
        ("docker", 7)
    );
    assert_eq!(settings.runtime.names, ["a", "b"]);
    setup.sources.flags = vec![("server.port".into(), "3".into(), "--port".into())];
    assert_eq!(setup.load().unwrap().settings.server.port, 3);
}

#[test]
fn every_problem_is_told_at_once_with_its_place() {
    let text = "\
[server]
prot = 1
port = 'many'
limits = 3
colour = 'red'

[runtime]
type = 7
api_key = 'x'

[sever]
x = 1
";
    let setup = Setup::new().variable("OPENSANDBOX_SERVER_PROT", "2");
    let setup = setup.variable("OPENSANDBOX_RUNTIME_FOREIGN", "");
    let problems = setup.problems(text).join("\n");
    for expected in [
        ".sandbox.toml line 2: server.prot is not a known key; did you mean server.port?",
        ".sandbox.toml line 3: server.port must be a whole number from 0 to 65535, not \"many\"",
        ".sandbox.toml line 4: server.limits is a section; write [server.limits]",
        ".sandbox.toml line 5: server.colour is not a known key",
        ".sandbox.toml line 8: runtime.type must be a text, not 7",
        ".sandbox.toml line 9: runtime.api_key is not a known key; did you mean server.api_key?",
        ".sandbox.toml line 11: sever is not a known key; did you mean server?",
        "environment variable OPENSANDBOX_SERVER_PROT sets no key; did you mean OPENSANDBOX_SERVER_PORT?",
    ] {
        assert!(
            problems.contains(expected),
            "{expected}\nnot in\n{problems}"
        );
    }
    assert_eq!(setup.problems(text).len(), 8);
}

#[test]
fn a_file_that_is_no_toml_is_told_with_its_line() {
    let problems = Setup::new().problems("[server]\nport = \n");
    assert_eq!(problems.len(), 1);
    assert!(
        problems[0].starts_with(".sandbox.toml line 2: "),
        "{problems:?}"
    );
}

#[test]
fn the_program_adds_its_own_checks() {
    let refuse = |settings: &Config, problems: &mut Problems| {
        assert_eq!(settings.server.port, 8080);
        problems.add("no");
        problems.add("never");
    };
    let problems = load(&Setup::new().sources, refuse).unwrap_err();
    assert_eq!(
        problems.to_string(),
        "the configuration has 2 problems:\n  - no\n  - never"
    );
}

#[test]
fn keys_from_elsewhere_are_passed_over_or_refused_with_the_reason() {
    let setup = Setup::new();
    setup.file(
        ".sandbox.toml",
        "[server]\nloop = 'auto'\n[otel]\nenabled = false\n",
    );
    let unused = setup.load().unwrap().unused;
    assert!(unused[0].ends_with(".sandbox.toml line 2: server.loop is not used: no loops"));
    assert_eq!(unused.len(), 1);
    assert_eq!(
        setup.problems("[otel]\nenabled = true\ntypo = 1\n[cluster]\nname = 'x'\n"),
        [
            ".sandbox.toml line 4: cluster is not supported: one machine",
            ".sandbox.toml line 2: otel.enabled is not supported: scrape /metrics",
            ".sandbox.toml line 3: otel.typo is not a known key",
        ]
    );
}

#[test]
fn secrets_are_never_shown() {
    let setup = Setup::new().variable("OPENSANDBOX_SERVER_API_KEY", "hunter2");
    let loaded = setup.load().unwrap();
    assert!(!format!("{loaded:?}").contains("hunter2"));
    assert_eq!(loaded.changed[0].value, "[hidden]");
    assert!(!Setup::new().problems("server.api_key = ['hunter2']")[0].contains("hunter2"));
}

#[test]
fn the_example_reads_back_and_the_reference_has_every_key() {
    let setup = Setup::new();
    let text = example::<Config>(
        "An example.",
        &[("server.port", "99"), ("runtime.type", "'x'")],
    );
    setup.file(".sandbox.toml", &text);
    let settings = setup.load().unwrap().settings;
    assert_eq!((settings.server.port, &*settings.runtime.kind), (99, "x"));
    assert!(
        text.contains("# The address.\n# host = \"127.0.0.1\"\n"),
        "{text}"
    );
    let page = reference::<Config>("OPENSANDBOX_");
    assert!(
        page.contains("| `port` | `8080` | `OPENSANDBOX_SERVER_PORT` | The port. |"),
        "{page}"
    );
    assert!(page.contains("## `[server.limits]`"), "{page}");
}
