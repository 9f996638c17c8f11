//! Interrupting a cell: how each interpreter is asked to stop one, and how to tell that it has.
//!
//! Python needs one interrupt, which it takes only while a cell runs: one that comes before the
//! cell has begun waits until the driver says so. So does a Jupyter kernel, by its own means.
//!
//! Node breaks a loop by terminating the script. When the signal comes at the very end of the
//! script, what is terminated instead is whatever the driver does next, the reading of a cell for
//! instance. So a cell that waits is ended by a frame; only one that does not let the driver read
//! gets the signal, and has then ended when the driver also answers a ping.
//!
//! A shell is the hardest: it may throw its input away, and with it the line
//! that reports, so it is asked to report again; an interrupt that meets a fork is lost on the
//! child, for which the shell then waits although it has reported (as in `session/worker.rs`), so
//! an interrupted cell has ended only when the shell also answers a question put after its report.
//!
//! Deliberately not here: how long a cell may take.

use std::time::Duration;

use tokio::time::Instant;

use super::driver::InterpreterEvent;
use super::frame::{self, Command, Frame};
use super::interpreter::Interpreter;
use super::language::{Interrupts, Language, bash_again, bash_mark, bash_status, is_bash_mark};
use super::sink::Channel;
use crate::session::stray;

/// How long an interpreter that may have missed an interrupt gets before the next one.
const AGAIN_AFTER: Duration = Duration::from_millis(150);

/// Interrupts after which what a shell's cell has started is killed: it does not heed them.
const GENTLE_STEPS: u32 = 3;

/// Interrupts in all, each after twice the time of the one before once they are not gentle any
/// more: ten seconds. Then only the cell's own timeout is left.
const STEPS: u32 = GENTLE_STEPS + 6;

/// What an interactive bash prints on standard error when `exit` is called.
const FAREWELL: &str = "exit\n";

/// The interruption of one cell.
pub(super) struct Interruption {
    interrupts: Interrupts,
    number: u64,
    since_ticks: i64,
    /// The driver takes interrupts now.
    has_begun: bool,
    /// Node's cell has ended, and the driver has still to answer.
    has_finished: bool,
    /// Interrupts asked for so far.
    step: u32,
    again_at: Option<Instant>,
    /// A shell's first report about the cell; later ones are about the reporting.
    status: Option<i32>,
    /// The line break that an interrupted shell prints has still to be left out.
    hides_break: bool,
    /// A last line that is a farewell if the shell ends now.
    farewell: &'static str,
}

impl Interruption {
    pub(super) fn new(language: &Language, number: u64) -> Self {
        let interrupts = language.interrupts();
        Self {
            interrupts,
            number,
            since_ticks: stray::now_ticks(),
            has_begun: interrupts != Interrupts::SignalOnceBegun,
            has_finished: false,
            step: 0,
            again_at: None,
            status: None,
            hides_break: false,
            farewell: "",
        }
    }

    /// Interrupts the cell, harder each time.
    pub(super) async fn ask(&mut self, driver: &mut Interpreter) {
        self.step += 1;
        self.hides_break = self.interrupts == Interrupts::InteractiveShell;
        if !self.has_begun {
            return;
        }
        if let (Some(shell), true) = (self.shell(driver), self.step > GENTLE_STEPS) {
            stray::kill(shell, self.since_ticks);
        }
        if self.takes_signal() {
            driver.interrupt();
        }
        let question = match (self.interrupts, self.status) {
            (Interrupts::SignalOnceBegun | Interrupts::Kernel, _) => return,
            (Interrupts::FrameThenSignal, _) if self.has_finished => self.ping(),
            (Interrupts::FrameThenSignal, _) => frame::encode(Command::Cancel, &[]),
            (Interrupts::InteractiveShell, None) => bash_again(self.number),
            (Interrupts::InteractiveShell, Some(_)) => bash_mark(self.step),
        };
        let wait = AGAIN_AFTER * 2_u32.pow(self.step.saturating_sub(GENTLE_STEPS).min(STEPS));
        self.again_at = (self.step < STEPS).then(|| Instant::now() + wait);
        // One that is dead says so by its end.
        let _ = driver.tell(&question).await;
    }

    fn takes_signal(&self) -> bool {
        self.interrupts != Interrupts::FrameThenSignal || (self.step > 1 && !self.has_finished)
    }

    fn ping(&self) -> Vec<u8> {
        frame::encode(Command::Ping, &[self.step.to_string().as_bytes()])
    }

    fn shell(&self, driver: &Interpreter) -> Option<i32> {
        driver
            .pid()
            .filter(|_| self.interrupts == Interrupts::InteractiveShell)
    }

    /// Waits until the cell is to be asked again.
    pub(super) async fn tick(&self) {
        match self.again_at {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// The driver takes interrupts from now on.
    pub(super) async fn began(&mut self, driver: &mut Interpreter) {
        self.has_begun = true;
        if self.step > 0 {
            self.ask(driver).await;
        }
    }

    /// Whether a cell that says it has ended has done so; Node's is asked first when it was
    /// interrupted.
    pub(super) async fn finished(&mut self, driver: &mut Interpreter) -> bool {
        if self.interrupts != Interrupts::FrameThenSignal || self.step == 0 {
            return true;
        }
        // What the cell has started was not signalled with the frame.
        if let Some(node) = driver.pid() {
            stray::interrupt_missed(node, self.since_ticks);
        }
        if self.step == 1 {
            return true;
        }
        self.has_finished = true;
        self.ask(driver).await;
        false
    }

    /// Whether this answers the last ping.
    pub(super) fn is_answered(&self, frame: &Frame) -> bool {
        let step = frame.fields.first();
        self.has_finished && step.is_some_and(|step| *step == self.step.to_string().as_bytes())
    }

    /// The status of the cell when a shell's report ends it.
    pub(super) async fn reported(
        &mut self,
        driver: &mut Interpreter,
        frame: &Frame,
    ) -> Option<i32> {
        let field = frame.fields.first()?;
        if self.status.is_some() {
            if !is_bash_mark(field, self.step) {
                return None;
            }
            if let Some(shell) = self.shell(driver) {
                stray::interrupt_missed(shell, self.since_ticks);
            }
            return self.status;
        }
        // Else it is of an older cell, which was asked twice for its report.
        let status = bash_status(field, self.number)?;
        if self.step == 0 {
            return Some(status);
        }
        self.status = Some(status);
        let _ = driver.tell(&bash_mark(self.step)).await;
        None
    }

    /// Leaves out what an interactive shell says on its own: a line break when it is interrupted,
    /// and a word when it ends.
    pub(super) fn without_shell_noise(&mut self, event: InterpreterEvent) -> InterpreterEvent {
        match event {
            InterpreterEvent::Output(Channel::Stderr, text)
                if self.interrupts == Interrupts::InteractiveShell =>
            {
                let mut text = format!("{}{text}", self.held());
                if self.hides_break && text.ends_with('\n') {
                    text.pop();
                    self.hides_break = false;
                }
                let before = text.strip_suffix(FAREWELL);
                if before.is_some_and(|before| before.is_empty() || before.ends_with('\n')) {
                    text.truncate(text.len() - FAREWELL.len());
                    self.farewell = FAREWELL;
                }
                InterpreterEvent::Output(Channel::Stderr, text)
            }
            other => other,
        }
    }

    /// Text that was held back in case the shell would end.
    pub(super) fn held(&mut self) -> &'static str {
        std::mem::take(&mut self.farewell)
    }
}
