//! Which languages there are, how each is started and what it is told.
//!
//! All need nothing in the image but the interpreter itself. Python and Node run a driver of
//! ours that speaks frames. Bash is an interactive shell that reads its commands from the
//! channel, because only an interactive shell survives the interrupt of what it runs; it reports
//! with frames that `printf` makes. Every other language is a Jupyter kernel that the image has.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use super::driver::Recipe;
use super::frame;
use super::javascript;
use super::jupyter::{Kernelspec, Kernelspecs};
use crate::path::Environment;

const PYTHON: &str = include_str!("drivers/python.py");
const NODE: &str = include_str!("drivers/node.js");

/// Compiles the driver.
const PYTHON_BOOT: &str = include_str!("drivers/boot.py");

/// No prompts, no history; then the frame that says ready.
const BASH_GREETING: &str = "PS1=; PS2=; unset HISTFILE; set +o history 2>/dev/null\n\
    { command printf '\\0\\0\\0\\001H' >&3; } 2>/dev/null\n";

/// A language that this sandbox may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Language {
    Python,
    JavaScript,
    TypeScript,
    Bash,
    Kernel(Arc<Kernelspec>),
}

impl Language {
    const BUILT_IN: [Self; 4] = [Self::Python, Self::JavaScript, Self::TypeScript, Self::Bash];

    /// The language of that name, or the names there are. Blocks on the disk when it is not
    /// built in.
    pub(super) fn find(name: &str, environment: &Environment) -> Result<Self, Vec<String>> {
        let mut built_in = Self::BUILT_IN.into_iter();
        if let Some(language) = built_in.find(|language| language.name() == name) {
            return Ok(language);
        }
        let kernels = Kernelspecs::look(environment);
        kernels.find(name).map(Self::Kernel).ok_or_else(|| {
            let names = Self::BUILT_IN.iter().map(Self::name);
            names.chain(kernels.names()).map(str::to_owned).collect()
        })
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Python => "python",
            Self::JavaScript => "javascript",
            Self::TypeScript => "typescript",
            Self::Bash => "bash",
            Self::Kernel(spec) => &spec.name,
        }
    }

    /// The program that must be in the image.
    pub(super) fn interpreter(&self) -> &str {
        match self {
            Self::Python => "python3",
            Self::JavaScript | Self::TypeScript => "node",
            Self::Bash => "bash",
            Self::Kernel(spec) => spec.program(),
        }
    }

    /// How to start its driver.
    pub(super) fn recipe(&self, environment: Environment, directory: Option<PathBuf>) -> Recipe {
        let words: &[&str] = match self {
            Self::Python => &["python3", "-c", PYTHON_BOOT, "3", PYTHON],
            Self::JavaScript | Self::TypeScript => {
                &["node", "--no-warnings", "-e", NODE, "--", "3", "4"]
            }
            Self::Bash => &["bash", "--noprofile", "--norc", "--noediting", "-i", "+H"],
            Self::Kernel(_) => unreachable!("a kernel has no driver"),
        };
        let argv = words.iter().map(OsString::from).collect();
        Recipe {
            argv,
            environment,
            directory,
            reads_channel: *self == Self::Bash,
            has_frames_apart: matches!(self, Self::JavaScript | Self::TypeScript),
        }
    }

    /// What it is told first.
    pub(super) fn greeting(&self) -> &'static [u8] {
        match self {
            Self::Python | Self::JavaScript | Self::TypeScript | Self::Kernel(_) => b"",
            Self::Bash => BASH_GREETING.as_bytes(),
        }
    }

    /// What it is told to run a cell, or why the text is not a cell of this language.
    pub(super) fn cell(&self, number: u64, code: &str) -> Result<Vec<u8>, javascript::SyntaxError> {
        let script = match self {
            Self::Kernel(_) => return Ok(code.into()),
            Self::Python => code.to_owned(),
            Self::JavaScript => javascript::to_script(code, javascript::Dialect::JavaScript)?,
            Self::TypeScript => javascript::to_script(code, javascript::Dialect::TypeScript)?,
            Self::Bash => {
                let quoted = code.replace('\0', "").replace('\'', r"'\''");
                let report = bash_report(number);
                return Ok(format!("command eval '{quoted}' 3>&- </dev/null\n\n{report}").into());
            }
        };
        Ok(frame::encode(b'X', &[script.as_bytes()]))
    }
}

/// What a shell is told after an interrupt: it throws away the input it has read, and with it the
/// line that reports.
pub(super) fn bash_again(number: u64) -> Vec<u8> {
    format!("\n{}", bash_report(number)).into()
}

/// Numbers of cells in reports repeat after this many; above are numbers of other questions.
const CELL_NUMBERS: u64 = 900_000;

/// A line that sends frame S with the number of the cell and its status.
fn bash_report(number: u64) -> String {
    report_line(number % CELL_NUMBERS)
}

/// A question of its own, to learn that the shell reads on. `mark` is not a cell's number.
pub(super) fn bash_mark(mark: u32) -> Vec<u8> {
    format!("\n{}", report_line(CELL_NUMBERS + u64::from(mark))).into()
}

/// Both numbers have a fixed width, because `printf` cannot count the bytes of its own output.
fn report_line(number: u64) -> String {
    format!(
        "{{ command printf '\\0\\0\\0\\017S\\0\\0\\0\\012{number:06} %03d' \"$?\" >&3; }} 2>/dev/null\n"
    )
}

/// The status in a shell's frame S, when it is about this cell.
pub(super) fn bash_status(field: &[u8], number: u64) -> Option<i32> {
    let (found, status) = read_report(field)?;
    (found == number % CELL_NUMBERS).then_some(status)
}

/// Whether a shell's frame S answers this question.
pub(super) fn is_bash_mark(field: &[u8], mark: u32) -> bool {
    read_report(field).is_some_and(|(found, _)| found == CELL_NUMBERS + u64::from(mark))
}

fn read_report(field: &[u8]) -> Option<(u64, i32)> {
    let (number, status) = std::str::from_utf8(field).ok()?.split_once(' ')?;
    Some((number.parse().ok()?, status.parse().ok()?))
}
