//! One context: a task that owns one interpreter, runs cells in the order they were asked for,
//! and starts the interpreter again when it has died.

use std::sync::Arc;
use std::time::Duration;

use api::exec::event::ExecutionError;
use api::id::ContextId;
use futures_util::FutureExt as _;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::cell::{CellTimeout, RunningCell, failure, timed_out};
use super::driver::InterpreterEvent;
use super::frame::{Frame, Report};
use super::interpreter::{Interpreter, StartOptions};
use super::interruption::Interruption;
use super::jupyter;
use super::language::Language;
use super::sink::{Channel, Sink};
use crate::limits::{self, Reached};
use crate::output::signal_name;
use crate::process::Exit;
use crate::state::Shared;

/// An interpreter says that it is ready within this, also on a machine that is busy.
pub(super) const START_MAX: Duration = Duration::from_secs(60);

/// A variable of the daemon that sets another number of seconds than [`START_MAX`], for kernels
/// that take their time.
const START_SECONDS_VARIABLE: &str = "EXECD_INTERPRETER_START_SECONDS";

/// Output that threads print while no cell runs, kept for the next one.
const IDLE_TEXT_BYTES: usize = 64 * 1024;

/// Why an interpreter did not start.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error("{interpreter} did not start; {language} needs an image that has it")]
    Launch {
        language: String,
        interpreter: String,
        source: jupyter::Error,
    },
    #[error("{interpreter} ended before it was ready ({exit}): {said}")]
    Died {
        interpreter: String,
        exit: String,
        said: String,
    },
    #[error(
        "{interpreter} was not ready after {} seconds; {START_SECONDS_VARIABLE} allows more", after.as_secs()
    )]
    TooSlow {
        interpreter: String,
        after: Duration,
    },
}

/// A cell to run.
pub(super) struct Run {
    pub(super) code: String,
    pub(super) timeout: Option<Duration>,
    pub(super) sink: Sink,
}

/// A context as its callers see it. Dropping the last handle ends the interpreter and everything
/// it started.
pub(super) struct Context {
    pub(super) id: ContextId,
    /// As it was asked for; a kernel may have another name.
    pub(super) language: String,
    pub(super) cwd: Option<String>,
    runs: mpsc::Sender<Run>,
    interrupt: Arc<Notify>,
}

impl Context {
    /// Starts the interpreter and returns when it is ready.
    pub(super) async fn start(
        shared: &Arc<Shared>,
        asked: &str,
        language: Language,
        cwd: Option<String>,
        options: StartOptions,
    ) -> Result<Arc<Self>, StartError> {
        let interrupt = Arc::new(Notify::new());
        let (runs, queue) = mpsc::channel(limits::QUEUED_RUNS);
        let mut owner = Owner {
            shared: Arc::clone(shared),
            language,
            options,
            driver: None,
            number: 0,
            idle_text: Vec::new(),
            ended: None,
            interrupt: Arc::clone(&interrupt),
        };
        owner.driver = Some(owner.start().await?);
        tokio::spawn(owner.serve(queue));
        Ok(Arc::new(Self {
            id: crate::state::fresh_id(),
            language: asked.to_owned(),
            cwd,
            runs,
            interrupt,
        }))
    }

    /// Puts a cell at the end of the queue.
    pub(super) fn enqueue(&self, run: Run) -> Result<(), Reached> {
        self.runs.try_send(run).map_err(|_| Reached {
            name: "QUEUED_RUNS",
            value: limits::QUEUED_RUNS,
            advice: "wait for runs in this context to end, or use another context",
        })
    }

    /// Asks the cell that runs now to stop. When none does it is forgotten before the next
    /// begins.
    pub(super) fn interrupt(&self) {
        self.interrupt.notify_one();
    }
}

struct Owner {
    shared: Arc<Shared>,
    language: Language,
    options: StartOptions,
    driver: Option<Interpreter>,
    /// How many cells have been run.
    number: u64,
    idle_text: Vec<(Channel, String)>,
    /// How the last interpreter ended, when nobody has been told yet.
    ended: Option<Exit>,
    interrupt: Arc<Notify>,
}

/// How a cell ended.
enum Outcome {
    Finished,
    /// The interpreter ended by itself.
    Died(Exit),
    /// The interpreter was killed because the cell did not end in time.
    Killed(Exit),
}

impl Owner {
    async fn serve(mut self, mut queue: mpsc::Receiver<Run>) {
        loop {
            let run = match &mut self.driver {
                None => queue.recv().await,
                Some(driver) => tokio::select! {
                    run = queue.recv() => run,
                    event = driver.next() => {
                        self.while_idle(event);
                        continue;
                    }
                },
            };
            match run {
                Some(run) => self.run(run).await,
                None => return,
            }
        }
    }

    async fn start(&self) -> Result<Interpreter, StartError> {
        let interpreter = self.language.interpreter().to_owned();
        let mut driver = Interpreter::start(&self.shared, &self.language, &self.options)
            .await
            .map_err(|source| StartError::Launch {
                language: self.language.name().to_owned(),
                interpreter: interpreter.clone(),
                source,
            })?;
        // One that is dead already says so below.
        let _ = driver.tell(&self.language.greeting()).await;
        let mut said = String::new();
        let ready = async {
            loop {
                match driver.next().await {
                    InterpreterEvent::Output(_, text) => said.push_str(&text),
                    InterpreterEvent::Frame(Frame {
                        kind: Report::Ready,
                        ..
                    }) => return Ok(()),
                    InterpreterEvent::Frame(_) | InterpreterEvent::TooLarge(_) => {}
                    InterpreterEvent::Died(exit) => return Err(exit),
                }
            }
        };
        let deadline = start_deadline(&self.shared);
        match tokio::time::timeout(deadline, ready).await {
            Ok(Ok(())) => Ok(driver),
            Ok(Err(exit)) => Err(StartError::Died {
                interpreter,
                exit: describe(exit),
                said: said.trim().to_owned(),
            }),
            Err(_) => Err(StartError::TooSlow {
                interpreter,
                after: deadline,
            }),
        }
    }

    /// Threads may print, and the interpreter may be killed, while no cell runs.
    fn while_idle(&mut self, event: InterpreterEvent) {
        match event {
            InterpreterEvent::Output(channel, text) => {
                let held: usize = self.idle_text.iter().map(|(_, text)| text.len()).sum();
                if held + text.len() <= IDLE_TEXT_BYTES {
                    self.idle_text.push((channel, text));
                }
            }
            InterpreterEvent::Died(exit) => {
                self.driver = None;
                self.ended = Some(exit);
            }
            InterpreterEvent::Frame(_) | InterpreterEvent::TooLarge(_) => {}
        }
    }

    async fn run(&mut self, run: Run) {
        let Run {
            code,
            timeout,
            sink,
        } = run;
        for (channel, text) in std::mem::take(&mut self.idle_text) {
            sink.text(channel, &text).await;
        }
        self.number += 1;
        match self.language.cell(self.number, &code) {
            Err(error) => {
                let mut traceback = error.lines;
                traceback.push(format!("SyntaxError: {}", error.message));
                let ename = "SyntaxError".to_owned();
                sink.error(ExecutionError {
                    ename,
                    evalue: error.message,
                    traceback,
                })
                .await;
            }
            Ok(script) => {
                if let Err(error) = self.restart(&sink).await {
                    let message = api::error_chain(&error).to_string();
                    sink.error(failure("InterpreterNotStarted", &message)).await;
                } else {
                    let outcome = self.cell(&script, timeout, &sink).await;
                    self.end_run(outcome, &sink).await;
                }
            }
        }
        sink.complete().await;
    }

    async fn end_run(&mut self, outcome: Outcome, sink: &Sink) {
        match outcome {
            Outcome::Finished => {}
            Outcome::Died(exit) => {
                self.driver = None;
                sink.error(failure("InterpreterDied", &format!(
                    "the {} interpreter ended while it ran this code ({}); its variables are gone, and the next run starts a new one",
                    self.language.name(),
                    describe(exit),
                )))
                .await;
            }
            Outcome::Killed(exit) => {
                self.driver = None;
                self.ended = Some(exit);
            }
        }
    }

    /// Makes sure there is an interpreter, and tells when it is a new one.
    async fn restart(&mut self, sink: &Sink) -> Result<(), StartError> {
        if self.driver.is_some() {
            return Ok(());
        }
        self.driver = Some(self.start().await?);
        if let Some(exit) = self.ended.take() {
            let note = format!(
                "the interpreter had ended ({}); this is a new one and knows none of the old variables\n",
                describe(exit),
            );
            sink.text(Channel::Stderr, &note).await;
        }
        Ok(())
    }

    async fn cell(&mut self, script: &[u8], timeout: Option<Duration>, sink: &Sink) -> Outcome {
        let (language, number) = (&self.language, self.number);
        let driver = self.driver.as_mut().expect("restarted before");
        let interrupt = Arc::clone(&self.interrupt);
        // One that came too late for the cell before must not end this one.
        let _ = interrupt.notified().now_or_never();
        let mut run = RunningCell {
            sink,
            timeout,
            deadline: CellTimeout {
                interrupt_at: timeout.map(|timeout| Instant::now() + timeout),
                kill_at: None,
            },
            interruption: Interruption::new(language, number),
            has_failed: false,
        };
        if driver.run(script).await.is_err() {
            // It is dead; the end of the process says how.
            driver.kill();
        }
        loop {
            let event = tokio::select! {
                event = driver.next() => run.interruption.without_shell_noise(event),
                () = interrupt.notified() => {
                    run.interruption.ask(driver).await;
                    continue;
                }
                () = run.interruption.tick() => {
                    run.interruption.ask(driver).await;
                    continue;
                }
                () = run.deadline.tick() => {
                    if run.deadline.fire(driver) {
                        run.interruption.ask(driver).await;
                    }
                    continue;
                }
            };
            match event {
                InterpreterEvent::Output(channel, text) => sink.text(channel, &text).await,
                InterpreterEvent::TooLarge(size) => {
                    sink.error(failure("ResultTooLarge", &format!(
                        "a value of {size} bytes is over RESULT_BYTES = {}; write it to a file and download that",
                        limits::RESULT_BYTES,
                    )))
                    .await;
                }
                InterpreterEvent::Died(exit) if run.deadline.has_fired() => {
                    sink.error(timed_out(timeout)).await;
                    return Outcome::Killed(exit);
                }
                InterpreterEvent::Died(exit) => return Outcome::Died(exit),
                InterpreterEvent::Frame(frame) => {
                    let is_over = run.take(driver, frame).await;
                    if is_over {
                        return Outcome::Finished;
                    }
                }
            }
        }
    }
}

fn start_deadline(shared: &Shared) -> Duration {
    let set = shared.environment.get(START_SECONDS_VARIABLE);
    set.and_then(|seconds| seconds.to_str()?.parse().ok())
        .map_or(START_MAX, Duration::from_secs)
}

fn describe(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit code {code}"),
        Exit::Signal(signal) => format!("signal: {}", signal_name(signal)),
        Exit::Lost => "it is not known how".to_owned(),
    }
}
