//! Which languages there are, how each is started and what it is told: one row of [`BUILT_IN`] each.
//!
//! All need nothing in the image but the interpreter itself. Python and Node run a driver of
//! ours that speaks frames. Bash is an interactive shell that reads its commands from the
//! channel, because only an interactive shell survives the interrupt of what it runs; it reports
//! with frames that `printf` makes. Every other language is a Jupyter kernel that the image has.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use super::driver::{Channels, DriverSpec};
use super::frame::{self, Command, Report};
use super::javascript::{self, Dialect, SyntaxError};
use super::jupyter::{Kernelspec, Kernelspecs};
use crate::path::Environment;

const PYTHON: &str = include_str!("drivers/python.py");
const NODE: &str = include_str!("drivers/node.js");

/// Compiles the driver.
const PYTHON_BOOT: &str = include_str!("drivers/boot.py");

const NODE_ARGV: &[&str] = &["node", "--no-warnings", "-e", NODE, "--", "3", "4"];

/// A language with a driver of ours. To add one is to add a row to [`BUILT_IN`].
#[derive(Debug)]
pub(super) struct BuiltIn {
    name: &'static str,
    /// The interpreter, which must be in the image, and its arguments.
    argv: &'static [&'static str],
    channels: Channels,
    interrupts: Interrupts,
    /// What the driver is told first.
    greeting: fn() -> Vec<u8>,
    /// What the driver is told to run the cell with this number, or why the text is not a cell.
    cell: fn(u64, &str) -> Result<Vec<u8>, SyntaxError>,
}

/// How an interpreter takes interrupts; `interruption.rs` says why they differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupts {
    /// One SIGINT, taken only once the cell has begun.
    SignalOnceBegun,
    /// A frame, and SIGINT only for a cell that does not let the driver read it.
    FrameThenSignal,
    /// SIGINT, again and again, to a shell that may throw its input away.
    InteractiveShell,
    /// As the kernel's own specification says.
    Kernel,
}

static BUILT_IN: [BuiltIn; 4] = [
    BuiltIn {
        name: "python",
        argv: &["python3", "-c", PYTHON_BOOT, "3", PYTHON],
        channels: Channels::OneSocket,
        interrupts: Interrupts::SignalOnceBegun,
        greeting: Vec::new,
        cell: |_, code| Ok(execute(code)),
    },
    BuiltIn {
        name: "javascript",
        argv: NODE_ARGV,
        channels: Channels::TwoSockets,
        interrupts: Interrupts::FrameThenSignal,
        greeting: Vec::new,
        cell: |_, code| Ok(execute(&javascript::to_script(code, Dialect::JavaScript)?)),
    },
    BuiltIn {
        name: "typescript",
        argv: NODE_ARGV,
        channels: Channels::TwoSockets,
        interrupts: Interrupts::FrameThenSignal,
        greeting: Vec::new,
        cell: |_, code| Ok(execute(&javascript::to_script(code, Dialect::TypeScript)?)),
    },
    BuiltIn {
        name: "bash",
        argv: &["bash", "--noprofile", "--norc", "--noediting", "-i", "+H"],
        channels: Channels::StandardInput,
        interrupts: Interrupts::InteractiveShell,
        greeting: bash_greeting,
        cell: |number, code| Ok(bash_cell(number, code)),
    },
];

/// A language that this sandbox may run.
#[derive(Debug, Clone)]
pub(super) enum Language {
    BuiltIn(&'static BuiltIn),
    Kernel(Arc<Kernelspec>),
}

impl Language {
    /// The language of that name, or the names there are. Blocks on the disk when it is not
    /// built in.
    pub(super) fn find(name: &str, environment: &Environment) -> Result<Self, Vec<String>> {
        if let Some(language) = BUILT_IN.iter().find(|language| language.name == name) {
            return Ok(Self::BuiltIn(language));
        }
        let kernels = Kernelspecs::look(environment);
        kernels.find(name).map(Self::Kernel).ok_or_else(|| {
            let names = BUILT_IN.iter().map(|language| language.name);
            names.chain(kernels.names()).map(str::to_owned).collect()
        })
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::BuiltIn(language) => language.name,
            Self::Kernel(spec) => &spec.name,
        }
    }

    /// The program that must be in the image.
    pub(super) fn interpreter(&self) -> &str {
        match self {
            Self::BuiltIn(language) => language.argv[0],
            Self::Kernel(spec) => spec.program(),
        }
    }

    pub(super) fn interrupts(&self) -> Interrupts {
        match self {
            Self::BuiltIn(language) => language.interrupts,
            Self::Kernel(_) => Interrupts::Kernel,
        }
    }

    /// What it is told first.
    pub(super) fn greeting(&self) -> Vec<u8> {
        match self {
            Self::BuiltIn(language) => (language.greeting)(),
            Self::Kernel(_) => Vec::new(),
        }
    }

    /// What it is told to run a cell, or why the text is not a cell of this language.
    pub(super) fn cell(&self, number: u64, code: &str) -> Result<Vec<u8>, SyntaxError> {
        match self {
            Self::BuiltIn(language) => (language.cell)(number, code),
            Self::Kernel(_) => Ok(code.into()),
        }
    }
}

impl BuiltIn {
    /// How to start its driver.
    pub(super) fn driver(
        &self,
        environment: Environment,
        directory: Option<PathBuf>,
    ) -> DriverSpec {
        DriverSpec {
            argv: self.argv.iter().map(OsString::from).collect(),
            environment,
            directory,
            channels: self.channels,
        }
    }
}

fn execute(script: &str) -> Vec<u8> {
    frame::encode(Command::Execute, &[script.as_bytes()])
}

/// No prompts, no history; then the frame that says ready.
fn bash_greeting() -> Vec<u8> {
    let ready = char::from(Report::Ready.letter());
    format!(
        "PS1=; PS2=; unset HISTFILE; set +o history 2>/dev/null\n\
         {{ command printf '\\0\\0\\0\\001{ready}' >&3; }} 2>/dev/null\n"
    )
    .into()
}

fn bash_cell(number: u64, code: &str) -> Vec<u8> {
    let quoted = code.replace('\0', "").replace('\'', r"'\''");
    let report = bash_report(number);
    format!("command eval '{quoted}' 3>&- </dev/null\n\n{report}").into()
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
    let status = char::from(Report::Status.letter());
    format!(
        "{{ command printf '\\0\\0\\0\\017{status}\\0\\0\\0\\012{number:06} %03d' \"$?\" >&3; }} 2>/dev/null\n"
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
