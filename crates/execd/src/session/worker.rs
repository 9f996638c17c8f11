//! The task that owns a session's shell.
//!
//! ```text
//!   start ──▶ idle ──run──▶ running ──report──▶ idle
//!              │               │ interrupt, timeout: SIGINT, then SIGKILL to what the
//!              │               │ run started, then the shell itself
//!              └──── close, shell ends ────▶ ended
//! ```

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::shell::{Mark, Protocol};
use super::stray;
use super::{Run, Session, State};
use crate::output::{Ending, Journal, Pump, Spool};
use crate::process::{Exit, Process};
use crate::state::Shared;

/// How long the first steps of ending a run wait for the shell's answer before the next,
/// harder step.
const STOP_STEP: Duration = Duration::from_millis(150);

/// Steps that only interrupt.
const GENTLE_STEPS: u32 = 3;

/// Steps after which the shell itself is killed. Each of those that are not gentle waits
/// twice as long as the one before: what is left by then is a machine too busy to answer,
/// and an interrupt makes a shell that was about to answer begin anew. Ten seconds in all.
const STOP_STEPS: u32 = GENTLE_STEPS + 5;

/// How long a shell gets to end on SIGHUP before SIGKILL.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// A running shell.
pub(super) struct Shell {
    pub(super) process: Process,
    pub(super) protocol: Protocol,
    pub(super) commands: pipe::Sender,
    pub(super) reports: BufReader<pipe::Receiver>,
    pub(super) pump: Pump,
    pub(super) spool: Arc<Spool>,
    /// What is printed between runs.
    pub(super) between: Arc<Journal>,
    pub(super) line: Vec<u8>,
}

/// Why waiting for a report ended.
enum Reported {
    Status(i32),
    Exited(Exit),
}

impl Shell {
    /// Waits until the shell answers for the first time, dropping what it says before.
    pub(super) async fn greet(&mut self) -> Result<(), Exit> {
        let greeting = self.protocol.greeting();
        match self.exchange(greeting, Mark::Run(0)).await {
            Reported::Status(_) => {
                self.pump.drain().await;
                self.idle();
                Ok(())
            }
            Reported::Exited(exit) => Err(exit),
        }
    }

    fn idle(&mut self) {
        self.between = Journal::new(Arc::clone(&self.spool));
        self.pump.switch(Arc::clone(&self.between));
    }

    /// Writes `text` and waits for the report with this mark, reading output meanwhile.
    async fn exchange(&mut self, text: String, mark: Mark) -> Reported {
        let Self {
            process,
            protocol,
            commands,
            reports,
            pump,
            line,
            ..
        } = self;
        let report = async {
            // A shell that has gone does not read; its end is noticed below.
            let _ = commands.write_all(text.as_bytes()).await;
            report(protocol, reports, line, mark).await
        };
        tokio::select! {
            biased;
            status = report => Reported::Status(status),
            exit = process.wait() => Reported::Exited(exit),
            () = forever(pump) => unreachable!("reading output does not end by itself"),
        }
    }

    /// PipeEnds a run that goes on, by ever harder means.
    ///
    /// A shell that has reported may still not be ready for the next run. An interrupt that
    /// comes while it forks is taken by the shell and lost on the child, which has not yet
    /// given up the shell's handler: the shell reports, then waits for the child before it
    /// reads another line. So the run has ended only when the shell has also answered a
    /// question that was put after its report.
    async fn stop(&mut self, number: u64, since_ticks: i64) -> Reported {
        let mut status = None;
        for step in 0..STOP_STEPS {
            // A program that does not heed the interrupt is killed, but only then: a shell
            // whose child dies of anything but the interrupt goes on with the next command.
            // The interrupt that follows at once is for that.
            if step >= GENTLE_STEPS {
                stray::kill(self.process.pid(), since_ticks);
            }
            self.process.signal_group(Signal::INT);
            let patience = STOP_STEP * 2_u32.pow(step.saturating_sub(GENTLE_STEPS));
            match tokio::time::timeout(patience, self.await_settled(number, step, &mut status))
                .await
            {
                Ok(Reported::Status(status)) => {
                    stray::interrupt_missed(self.process.pid(), since_ticks);
                    return Reported::Status(status);
                }
                Ok(exited @ Reported::Exited(_)) => return exited,
                Err(_) => {}
            }
        }
        self.process.signal_group(Signal::KILL);
        Reported::Exited(self.process.wait().await)
    }

    /// Waits for the report of an interrupted run, then for the shell to read on. What was
    /// reported stays in `status`, because only the first report is about the run.
    async fn await_settled(
        &mut self,
        number: u64,
        step: u32,
        status: &mut Option<i32>,
    ) -> Reported {
        if status.is_none() {
            // An interrupted shell may throw its input away, and with it the line that
            // reports: it is asked again.
            let again = self.protocol.ask(Mark::Run(number));
            match self.exchange(again, Mark::Run(number)).await {
                Reported::Status(reported) => *status = Some(reported),
                exited @ Reported::Exited(_) => return exited,
            }
        }
        let mark = Mark::Settled(number, step);
        match self.exchange(self.protocol.ask(mark), mark).await {
            Reported::Status(_) => Reported::Status(status.expect("reported above")),
            exited @ Reported::Exited(_) => exited,
        }
    }

    async fn run(&mut self, session: &Session, run: &Run, number: u64) -> Option<Exit> {
        let begun = Instant::now();
        let since_ticks = stray::now_ticks();
        run.journal.copy_recent(&self.between);
        self.pump.switch(Arc::clone(&run.journal));
        let text = self.protocol.run(number, run.cwd.as_deref(), &run.code);
        let deadline = run.timeout.map(|timeout| begun + timeout);
        let (reported, has_timed_out) = tokio::select! {
            reported = self.exchange(text, Mark::Run(number)) => (reported, false),
            () = session.interrupted.notified() => (self.stop(number, since_ticks).await, false),
            () = reached(deadline) => (self.stop(number, since_ticks).await, true),
        };
        let (exit, gone) = match reported {
            Reported::Status(status) => (Exit::Code(status), None),
            Reported::Exited(exit) => (exit, Some(exit)),
        };
        self.pump.read_waiting().await;
        if gone.is_some() {
            self.pump.forget_farewell();
        }
        self.pump.drain().await;
        let time_ms = Timestamp::now().as_millisecond();
        let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        run.journal.finish(if has_timed_out {
            Ending::TimedOut { time_ms }
        } else {
            Ending::Exited {
                exit,
                time_ms,
                took_ms,
            }
        });
        self.idle();
        gone
    }

    /// PipeEnds the shell: as a terminal that hangs up, then for good.
    async fn close(&mut self) {
        self.process.signal_group(Signal::HUP);
        self.process.signal_group(Signal::CONT);
        if tokio::time::timeout(CLOSE_GRACE, self.process.wait())
            .await
            .is_err()
        {
            self.process.signal_group(Signal::KILL);
            self.process.wait().await;
        }
    }
}

/// Owns the shell until it ends.
pub(super) async fn work(
    shared: Arc<Shared>,
    session: Arc<Session>,
    mut shell: Shell,
    mut runs: mpsc::Receiver<Run>,
) {
    let mut number = 0;
    loop {
        let run = tokio::select! {
            biased;
            () = session.closed.notified() => {
                shell.close().await;
                break;
            }
            _ = shell.process.wait() => break,
            run = runs.recv() => run,
            () = forever(&mut shell.pump) => unreachable!("reading output does not end by itself"),
        };
        let Some(run) = run else { break };
        number += 1;
        session.state.send_replace(State::Running(number));
        let gone = tokio::select! {
            gone = shell.run(&session, &run, number) => gone,
            () = session.closed.notified() => {
                shell.close().await;
                run.journal.finish(not_run("the session was deleted while this ran"));
                break;
            }
        };
        // An interrupt that came too late must not end the next run.
        session.state.send_replace(State::Idle);
        let _ = futures_util::FutureExt::now_or_never(session.interrupted.notified());
        if gone.is_some() {
            break;
        }
    }
    shared.sessions.remove(&session);
    runs.close();
    while let Some(run) = runs.recv().await {
        run.journal
            .finish(not_run("the session ended before this could run"));
    }
    session.state.send_replace(State::Ended);
    // Jobs that ignore the hang-up go on and must be able to print.
    shell.pump.run().await;
}

fn not_run(message: &str) -> Ending {
    let time_ms = Timestamp::now().as_millisecond();
    Ending::NotStarted {
        message: message.to_owned(),
        time_ms,
    }
}

/// Reads output for as long as somebody waits for something else.
async fn forever(pump: &mut Pump) {
    pump.run().await;
    // All pipes are closed; what is waited for decides.
    std::future::pending::<()>().await;
}

/// The next report with this mark; others are stale.
async fn report(
    protocol: &Protocol,
    reports: &mut BufReader<pipe::Receiver>,
    line: &mut Vec<u8>,
    mark: Mark,
) -> i32 {
    loop {
        // Keeps what it has read in `line` when it is dropped.
        match reports.read_until(b'\n', line).await {
            Ok(read) if read > 0 => {
                let status = protocol.status(String::from_utf8_lossy(line).trim_end(), mark);
                line.clear();
                if let Some(status) = status {
                    return status;
                }
            }
            // Closed: only the shell's end can decide now.
            Ok(_) | Err(_) => std::future::pending().await,
        }
    }
}

async fn reached(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
