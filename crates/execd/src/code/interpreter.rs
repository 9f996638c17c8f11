//! What runs a context's cells: a driver of ours or a Jupyter kernel, behind one set of verbs.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::driver::{Driver, InterpreterEvent};
use super::jupyter::{self, Kernel};
use super::language::Language;
use crate::state::Shared;

/// Where an interpreter runs, also when it is started again.
#[derive(Clone)]
pub(super) struct StartOptions {
    pub(super) directory: Option<PathBuf>,
    /// Variables over those of the sandbox.
    pub(super) envs: Vec<(String, String)>,
}

/// A running interpreter.
pub(super) enum Interpreter {
    Driver(Box<Driver>),
    Kernel(Box<Kernel>),
}

impl Interpreter {
    /// Starts it. It says when it is ready with its first frame.
    pub(super) async fn start(
        shared: &Arc<Shared>,
        language: &Language,
        options: &StartOptions,
    ) -> Result<Self, jupyter::Error> {
        let environment = crate::command::environment(shared, &options.envs);
        let directory = options.directory.clone();
        match language {
            Language::Kernel(spec) => {
                let mut environment = spec.environment(environment);
                // What was asked for this context weighs more than what the kernel wants.
                for (name, value) in &options.envs {
                    environment.set(name, value);
                }
                let kernel = Kernel::start(shared, spec, environment, directory).await?;
                Ok(Self::Kernel(Box::new(kernel)))
            }
            Language::BuiltIn(language) => {
                let spec = language.driver(environment, directory);
                let driver = Driver::start(shared, spec).await?;
                Ok(Self::Driver(Box::new(driver)))
            }
        }
    }

    /// Hands over what [`Language::cell`] made of a cell.
    pub(super) async fn run(&mut self, script: &[u8]) -> io::Result<()> {
        match self {
            Self::Driver(driver) => driver.send(script).await,
            Self::Kernel(kernel) => {
                kernel.execute(&String::from_utf8_lossy(script));
                Ok(())
            }
        }
    }

    /// Tells a driver something that is no cell. Kernels have messages for what they need.
    pub(super) async fn tell(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Driver(driver) => driver.send(bytes).await,
            Self::Kernel(_) => Ok(()),
        }
    }

    /// What happens next. May be dropped and called again.
    pub(super) async fn next(&mut self) -> InterpreterEvent {
        match self {
            Self::Driver(driver) => driver.next().await,
            Self::Kernel(kernel) => kernel.next().await,
        }
    }

    /// The process of a driver.
    pub(super) fn pid(&self) -> Option<i32> {
        match self {
            Self::Driver(driver) => Some(driver.pid()),
            Self::Kernel(_) => None,
        }
    }

    /// Asks user code to stop.
    pub(super) fn interrupt(&mut self) {
        match self {
            Self::Driver(driver) => driver.interrupt(),
            Self::Kernel(kernel) => kernel.interrupt(),
        }
    }

    /// Ends the interpreter and every process of its group.
    pub(super) fn kill(&self) {
        match self {
            Self::Driver(driver) => driver.kill(),
            Self::Kernel(kernel) => kernel.kill(),
        }
    }
}
