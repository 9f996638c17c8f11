//! `osb doctor`: what this machine can do for sandboxes, and, with `--attack`, whether they hold.
//!
//! Reads the server's configuration and changes nothing of the server's.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use daemon::config::Loaded;
use lifecycle::doctor::{Check, Section};

use super::{Failure, environment, print};
use crate::backends;
use crate::config::{self, Config, Exposure};

/// Says what this machine can do for sandboxes, what is missing, and how to mend it. With --attack it runs hostile
/// programs in real sandboxes and says whether anything stopped them.
#[derive(Debug, Parser)]
#[command(name = "osb doctor", bin_name = "osb doctor", version)]
struct DoctorArguments {
    /// The configuration file of the server.
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,
    /// For programs.
    #[arg(long)]
    json: bool,
    /// Attack sandboxes of the embedded runtime on this machine, for some minutes. Fails if any attack gets through.
    #[arg(long)]
    attack: bool,
    /// Only attacks whose id contains this, as network or kernel.pid1; may be given more than once.
    #[arg(long, value_name = "TEXT", requires = "attack")]
    only: Vec<String>,
    /// Say which attacks there are, what each means and what stops it, and make none.
    #[arg(long, requires = "attack")]
    list: bool,
}

/// Runs `osb doctor` with these arguments, of which the first is the program. Succeeds when
/// sandboxes can be made.
pub fn doctor(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match DoctorArguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => error.exit(),
    };
    match examine(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "osb doctor: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

fn examine(arguments: &DoctorArguments) -> Result<bool, Failure> {
    let sources = config::sources(arguments.config.clone(), Vec::new(), environment());
    let loaded =
        config::load(&sources).map_err(|problems| Failure::unusable(problems.to_string()))?;
    if arguments.attack {
        return attack_sandboxes(arguments, &loaded.settings);
    }
    let backend = backends::of(loaded.settings.runtime.kind);
    let mut report = backend.doctor(&loaded.settings).map_err(|error| Failure {
        message: error.to_string(),
        code: 1,
    })?;
    report.sections.push(Section {
        name: "configuration",
        checks: vec![secrets_check(&loaded)],
    });
    let text = if arguments.json {
        format!("{:#}\n", report.to_json())
    } else {
        report.to_string()
    };
    print(&text)?;
    Ok(report.is_able())
}

/// Runs the escape suite here. Nothing of the server's is touched: only the filesystem of its data directory and
/// the execd that it would use are the same.
fn attack_sandboxes(arguments: &DoctorArguments, settings: &Config) -> Result<bool, Failure> {
    let failed = |message: String| Failure { message, code: 1 };
    let cases = attack::list(&arguments.only);
    if cases.is_empty() {
        let wanted = arguments.only.join(" or ");
        return Err(Failure::unusable(format!(
            "no attack has {wanted} in its id; osb doctor --attack --list has all"
        )));
    }
    if arguments.list {
        let text = if arguments.json {
            serde_json::to_string_pretty(&cases).map_err(|error| failed(error.to_string()))? + "\n"
        } else {
            cases.iter().map(attack::CaseReport::explained).collect()
        };
        return print(&text).map(|()| true);
    }
    let embedded = backends::embedded_settings(settings)
        .map_err(|error| failed(format!("finding the own program: {error}")))?;
    let options = attack::Options {
        directory: nearest_directory(&embedded.data_dir).to_owned(),
        execd: embedded.execd,
        only: arguments.only.clone(),
    };
    let told = |case: &attack::CaseReport| {
        if !arguments.json {
            let _ = print(&format!("{case}\n"));
        }
    };
    let report = attack::run(&options, told).map_err(failed)?;
    let text = if arguments.json {
        report.to_json()
    } else {
        report.to_string()
    };
    print(&text)?;
    Ok(report.has_held())
}

/// The directory itself, or the nearest one above it that is there.
fn nearest_directory(path: &Path) -> &Path {
    path.ancestors()
        .find(|path| path.is_dir())
        .unwrap_or(Path::new("/"))
}

/// Whether others can read the secrets of the configuration.
fn secrets_check(loaded: &Loaded<Config>) -> Check {
    const NAME: &str = "secrets";
    match config::exposure(loaded) {
        None => Check::ok(NAME, "no file that others may read holds one"),
        Some(Exposure { problem, fix }) => Check::degraded(NAME, problem).mended_by(fix),
    }
}
