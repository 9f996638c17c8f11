//! Tools that run commands.

mod text;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use opensandbox::{Event, Execution, Output, Sandbox};
use rmcp::model::ContentBlock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::answer::{Status, status};
use crate::arguments::{InSandbox, seconds};
use crate::tool::{Answer, Call, Effect, Entry, Outcome, ToolError, tool};

use text::{head, said, shorten};

/// How often a client is told about a command that prints, and about one that does not.
const TELL_OUTPUT: Duration = Duration::from_millis(250);
const TELL_QUIET: Duration = Duration::from_secs(5);

/// As much of a line as goes into a notification.
const TOLD_CHARS: usize = 200;

/// What to run.
#[derive(Debug, Deserialize, JsonSchema)]
struct Run {
    /// The sandbox's id.
    sandbox_id: String,
    /// Shell text: pipes, redirects and several lines are fine.
    command: String,
    /// Answer at once and let it run: for servers and long work. Read its output with
    /// command_logs, ask for its end with command_status.
    #[serde(default)]
    background: bool,
    /// Absolute path to run it in.
    working_directory: Option<String>,
    /// Connect first if this server does not know the sandbox yet.
    #[serde(default)]
    connect_if_missing: bool,
    /// Kill it after this many seconds. Set it: a command that never ends is never answered.
    timeout_seconds: Option<f64>,
    /// Environment variables of this command.
    env: Option<BTreeMap<String, String>>,
    /// Text for its standard input, which is empty if left out.
    stdin: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Interrupt {
    /// The sandbox's id.
    sandbox_id: String,
    /// The id that command_run answered.
    execution_id: String,
    /// Connect first if this server does not know the sandbox yet.
    #[serde(default)]
    connect_if_missing: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ReadLogs {
    /// The sandbox's id.
    sandbox_id: String,
    /// The id that command_run answered.
    execution_id: String,
    /// Where to read on: the cursor of the last answer. From the beginning if left out.
    cursor: Option<u64>,
    /// Connect first if this server does not know the sandbox yet.
    #[serde(default)]
    connect_if_missing: bool,
}

/// How an execution went.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ExecutionAnswer {
    /// Give it to command_logs, command_status and command_interrupt.
    id: Option<String>,
    /// How many cells the context has run; for code only.
    execution_count: Option<u64>,
    /// Values and displays; for code only.
    result: Vec<ResultAnswer>,
    /// How it failed; null if it did not.
    error: Option<ErrorAnswer>,
    /// That it is over; null if it failed.
    complete: Option<Complete>,
    /// 0 is success; -1 a signal, which a timeout sends; null while it runs.
    exit_code: Option<i32>,
    /// It runs in the background: ask for its end with command_status.
    running: bool,
    logs: Logs,
    /// Output was left out in the middle: read it with command_logs.
    truncated: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ResultAnswer {
    text: Option<String>,
    timestamp: i64,
    /// The value in its other forms, by media type; images are answered as images.
    extra_properties: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ErrorAnswer {
    name: String,
    /// The exit code of a command, the message of an exception.
    value: String,
    timestamp: i64,
    traceback: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Complete {
    timestamp: i64,
    execution_time_in_millis: u64,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
struct Logs {
    stdout: Vec<Message>,
    stderr: Vec<Message>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Message {
    text: String,
    timestamp: i64,
    is_error: bool,
}

/// Output of a command from the cursor on.
#[derive(Debug, Serialize, JsonSchema)]
struct LogsAnswer {
    content: String,
    /// Give it as cursor to read on.
    cursor: Option<u64>,
    /// There is more to read at once, with the cursor.
    more: bool,
    /// Whether the command still runs.
    running: bool,
    exit_code: Option<i32>,
}

/// How a command is going.
#[derive(Debug, Serialize, JsonSchema)]
struct StatusAnswer {
    id: String,
    /// What was asked to run.
    command: String,
    running: bool,
    exit_code: Option<i32>,
    error: Option<String>,
    started_at: String,
    finished_at: Option<String>,
}

impl From<opensandbox::wire::exec::command::CommandStatus> for StatusAnswer {
    fn from(status: opensandbox::wire::exec::command::CommandStatus) -> Self {
        Self {
            id: status.id.to_string(),
            command: status.content,
            running: status.running,
            exit_code: status.exit_code,
            error: status.error,
            started_at: status.started_at.to_string(),
            finished_at: status.finished_at.map(|at| at.to_string()),
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct CommandList {
    result: Vec<StatusAnswer>,
}

pub(crate) fn tools() -> Vec<Entry> {
    use Effect::{Changes, Destroys, Reads};
    vec![
        tool::<Run, ExecutionAnswer, _, _>(
            "command_run",
            Changes,
            "Runs shell text in a sandbox and answers its output and exit code. A failed command \
             is an answer with an exit_code, not an error of the tool. Each call is a new shell: \
             variables and cd are not kept. For servers use background=true.",
            run,
        ),
        tool::<Interrupt, Status, _, _>(
            "command_interrupt",
            Destroys,
            "Ends a running command, as Ctrl-C does.",
            interrupt,
        ),
        tool::<ReadLogs, LogsAnswer, _, _>(
            "command_logs",
            Reads,
            "Answers what a command has printed so far, from a cursor on, and whether it still \
             runs. For commands that were started with background=true, and for output that \
             command_run left out.",
            logs,
        ),
        tool::<Interrupt, StatusAnswer, _, _>(
            "command_status",
            Reads,
            "Tells whether a command still runs, and its exit code if it does not.",
            command_status,
        ),
        tool::<InSandbox, CommandList, _, _>(
            "command_list",
            Reads,
            "Lists the commands of a sandbox, running and ended, with their ids.",
            list,
        ),
    ]
}

async fn run(call: Call, arguments: Run) -> Outcome {
    let sandbox = call
        .registry
        .get(&arguments.sandbox_id, arguments.connect_if_missing)
        .await?;
    let mut command = sandbox
        .commands()
        .run(arguments.command)
        .envs(arguments.env.unwrap_or_default());
    if let Some(directory) = arguments.working_directory {
        command = command.cwd(directory);
    }
    if let Some(timeout) = arguments.timeout_seconds {
        command = command.timeout(seconds("timeout_seconds", timeout)?);
    }
    if let Some(text) = arguments.stdin {
        command = command.stdin(text);
    }
    if arguments.background {
        return Ok(begun(command.background().await?));
    }
    let execution = command.stream().await?;
    let output = follow(&call, &sandbox, execution, Undo::Command).await?;
    Ok(answer(output))
}

/// How to end what was started when the client does not want it any more.
#[derive(Clone, Copy)]
pub(crate) enum Undo {
    Command,
    Code,
}

/// Reads an execution to its end, tells the client how it is going, and ends it when the client
/// cancels.
pub(crate) async fn follow(
    call: &Call,
    sandbox: &Sandbox,
    mut execution: Execution,
    undo: Undo,
) -> Result<Output, ToolError> {
    let begun = Instant::now();
    let mut told = begun;
    let mut output = Output::default();
    loop {
        tokio::select! {
            event = execution.next() => {
                let Some(event) = event else { return Ok(output) };
                let event = event?;
                if call.progress.is_wanted() && told.elapsed() >= TELL_OUTPUT
                    && let Event::Stdout(text) | Event::Stderr(text) = &event
                {
                    told = Instant::now();
                    call.progress.say(text.trim_end().chars().take(TOLD_CHARS).collect::<String>()).await;
                }
                output.push(event);
            }
            () = tokio::time::sleep(TELL_QUIET), if call.progress.is_wanted() => {
                call.progress.say(format!("running for {} s", begun.elapsed().as_secs())).await;
            }
            () = call.cancelled.cancelled() => {
                if let Some(id) = &output.id {
                    // It may have ended by itself just now.
                    let _ = match undo {
                        Undo::Command => sandbox.commands().interrupt(id).await,
                        Undo::Code => sandbox.code().interrupt(id).await,
                    };
                }
                return Err(ToolError::new("the call was cancelled and what ran was interrupted"));
            }
        }
    }
}

/// A command that was started and has not ended: nothing is known of how it will.
fn begun(id: String) -> Answer {
    let text = format!(
        "running in the background, execution_id {id}; command_logs has its output, command_status \
         says whether it has ended"
    );
    Answer::new(&ExecutionAnswer {
        id: Some(id),
        execution_count: None,
        result: Vec::new(),
        error: None,
        complete: None,
        exit_code: None,
        running: true,
        logs: Logs::default(),
        truncated: false,
    })
    .with_text(text)
}

/// An output as it is answered, pictures apart.
pub(crate) fn answer(output: Output) -> Answer {
    let now = jiff::Timestamp::now().as_millisecond();
    let exit_code = output.exit_code();
    let is_success = output.is_success();
    let mut truncated = false;
    let mut message = |text: String, is_error| {
        let (text, is_cut) = shorten(text);
        truncated |= is_cut;
        let message = Message {
            text,
            timestamp: now,
            is_error,
        };
        (!message.text.is_empty()).then_some(message)
    };
    let logs = Logs {
        stdout: message(output.stdout, false).into_iter().collect(),
        stderr: message(output.stderr, true).into_iter().collect(),
    };
    let mut pictures = Vec::new();
    let mut result = Vec::new();
    for value in output.results {
        let text = value.text().map(str::to_owned);
        let mut extra_properties = BTreeMap::new();
        for (media_type, content) in value.by_type {
            match media_type.as_str() {
                "text" | "text/plain" => {}
                "image/png" | "image/jpeg" | "image/gif" | "image/webp" => {
                    // Encoders break base64 into lines; clients want it whole.
                    let data: String = content.split_whitespace().collect();
                    pictures.push(ContentBlock::image(data, media_type));
                }
                _ => {
                    let (content, is_cut) = shorten(content);
                    truncated |= is_cut;
                    extra_properties.insert(media_type, content);
                }
            }
        }
        result.push(ResultAnswer {
            text,
            timestamp: now,
            extra_properties,
        });
    }
    let took = output.took.map_or(0, |took| took.as_millis());
    let answer = ExecutionAnswer {
        id: output.id,
        execution_count: output.count,
        result,
        error: output.error.map(|error| ErrorAnswer {
            name: error.ename,
            value: error.evalue,
            timestamp: now,
            traceback: error.traceback,
        }),
        complete: is_success.then(|| Complete {
            timestamp: now,
            execution_time_in_millis: u64::try_from(took).unwrap_or(u64::MAX),
        }),
        exit_code,
        running: false,
        logs,
        truncated,
    };
    Answer::new(&answer)
        .with_text(said(&answer))
        .with_pictures(pictures)
}

async fn interrupt(call: Call, arguments: Interrupt) -> Outcome {
    let sandbox = call
        .registry
        .get(&arguments.sandbox_id, arguments.connect_if_missing)
        .await?;
    let commands = sandbox.commands();
    commands.interrupt(&arguments.execution_id).await?;
    Ok(Answer::new(&status("interrupted")))
}

async fn logs(call: Call, arguments: ReadLogs) -> Outcome {
    let sandbox = call
        .registry
        .get(&arguments.sandbox_id, arguments.connect_if_missing)
        .await?;
    let commands = sandbox.commands();
    let id = &arguments.execution_id;
    // Asked first: what is printed between the two is in the logs of one that has ended.
    let status = commands.status(id).await?;
    let read = commands.logs(id, arguments.cursor).await?;
    let (content, is_cut) = head(read.text);
    let start = arguments.cursor.unwrap_or(0);
    let cursor = match is_cut {
        true => Some(start + content.len() as u64),
        false => read.cursor,
    };
    let stands = match (is_cut, status.running, status.exit_code) {
        (true, _, _) => format!("there is more: cursor {}", cursor.unwrap_or_default()),
        (_, true, _) => format!(
            "still running; read on with cursor {}",
            cursor.unwrap_or_default()
        ),
        (_, false, Some(code)) => format!("ended with exit code {code}"),
        (_, false, None) => "ended".to_owned(),
    };
    let text = format!("{}\n({stands})", content.trim_end_matches('\n'));
    Ok(Answer::new(&LogsAnswer {
        cursor,
        content,
        more: is_cut,
        running: status.running,
        exit_code: status.exit_code,
    })
    .with_text(text.trim_start()))
}

async fn command_status(call: Call, arguments: Interrupt) -> Outcome {
    let sandbox = call
        .registry
        .get(&arguments.sandbox_id, arguments.connect_if_missing)
        .await?;
    let found = sandbox.commands().status(&arguments.execution_id).await?;
    Ok(Answer::new(&StatusAnswer::from(found)))
}

async fn list(call: Call, arguments: InSandbox) -> Outcome {
    let sandbox = call
        .registry
        .get(&arguments.sandbox_id, arguments.connect_if_missing)
        .await?;
    let found = sandbox.commands().list().await?;
    Ok(Answer::new(&CommandList {
        result: found.into_iter().map(Into::into).collect(),
    }))
}
