//! Tools that run code which remembers.

use opensandbox::wire::exec::code::Context;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::answer::{Status, status};
use crate::arguments::{InSandbox, seconds};
use crate::commands::{self, ExecutionAnswer, Undo};
use crate::tool::{Answer, Call, Effect, Entry, Outcome, tool};

/// Code to run.
#[derive(Debug, Deserialize, JsonSchema)]
struct Run {
    /// The sandbox's id.
    sandbox_id: String,
    /// The code. The value of its last expression is answered.
    code: String,
    /// python, javascript, typescript or bash.
    #[serde(default = "python")]
    language: String,
    /// A context from code_context_create; the default one of the language if left out.
    context_id: Option<String>,
    /// Interrupt it after this many seconds; what it remembers is kept.
    timeout_seconds: Option<f64>,
    /// Connect first if this server does not know the sandbox yet.
    #[serde(default)]
    connect_if_missing: bool,
}

fn python() -> String {
    "python".to_owned()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Create {
    /// The sandbox's id.
    sandbox_id: String,
    /// python, javascript, typescript or bash.
    #[serde(default = "python")]
    language: String,
    /// Absolute path the code runs in.
    working_directory: Option<String>,
    /// Connect first if this server does not know the sandbox yet.
    #[serde(default)]
    connect_if_missing: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct OfContext {
    /// The sandbox's id.
    sandbox_id: String,
    /// The context's id.
    context_id: String,
    /// Connect first if this server does not know the sandbox yet.
    #[serde(default)]
    connect_if_missing: bool,
}

/// A place in which code remembers.
#[derive(Debug, Serialize, JsonSchema)]
struct ContextAnswer {
    /// Give it to code_run.
    context_id: String,
    language: String,
    working_directory: Option<String>,
}

impl From<Context> for ContextAnswer {
    fn from(context: Context) -> Self {
        Self {
            context_id: context.id.to_string(),
            language: context.language,
            working_directory: context.cwd,
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct ContextList {
    result: Vec<ContextAnswer>,
}

pub(crate) fn tools() -> Vec<Entry> {
    use Effect::{Changes, Destroys, Reads};
    vec![
        tool::<Run, ExecutionAnswer, _, _>(
            "code_run",
            Changes,
            "Runs code in a live interpreter of a sandbox: variables, imports and functions are \
             kept for the next call. Answers printed output, the value of the last expression \
             and images such as matplotlib figures. An exception is an answer with an error, not \
             an error of the tool.",
            run,
        ),
        tool::<Create, ContextAnswer, _, _>(
            "code_context_create",
            Changes,
            "Makes a further interpreter with variables of its own. Not needed for a first \
             code_run: each language has a default context.",
            create,
        ),
        tool::<InSandbox, ContextList, _, _>(
            "code_context_list",
            Reads,
            "Lists the interpreters of a sandbox.",
            list,
        ),
        tool::<OfContext, Status, _, _>(
            "code_context_delete",
            Destroys,
            "Ends an interpreter and forgets its variables.",
            delete,
        ),
        tool::<OfContext, Status, _, _>(
            "code_interrupt",
            Destroys,
            "Interrupts the code that runs in a context; its variables are kept.",
            interrupt,
        ),
    ]
}

async fn run(call: Call, arguments: Run) -> Outcome {
    let sandbox = call
        .registry
        .get(&arguments.sandbox_id, arguments.connect_if_missing)
        .await?;
    let mut code = sandbox.code().run(arguments.code);
    code = match arguments.context_id {
        Some(id) => code.context(id),
        None => code.language(arguments.language),
    };
    if let Some(timeout) = arguments.timeout_seconds {
        code = code.timeout(seconds("timeout_seconds", timeout)?);
    }
    let execution = code.stream().await?;
    let output = commands::follow(&call, &sandbox, execution, Undo::Code).await?;
    Ok(commands::answer(output))
}

async fn create(call: Call, arguments: Create) -> Outcome {
    let sandbox = call
        .registry
        .get(&arguments.sandbox_id, arguments.connect_if_missing)
        .await?;
    let directory = arguments.working_directory.as_deref();
    let code = sandbox.code();
    let context = code.create_context(&arguments.language, directory).await?;
    Ok(Answer::new(&ContextAnswer::from(context)))
}

async fn list(call: Call, arguments: InSandbox) -> Outcome {
    let sandbox = call
        .registry
        .get(&arguments.sandbox_id, arguments.connect_if_missing)
        .await?;
    let found = sandbox.code().list_contexts(None).await?;
    Ok(Answer::new(&ContextList {
        result: found.into_iter().map(Into::into).collect(),
    }))
}

async fn delete(call: Call, arguments: OfContext) -> Outcome {
    let sandbox = call
        .registry
        .get(&arguments.sandbox_id, arguments.connect_if_missing)
        .await?;
    sandbox.code().delete_context(&arguments.context_id).await?;
    Ok(Answer::new(&status("deleted")))
}

async fn interrupt(call: Call, arguments: OfContext) -> Outcome {
    let sandbox = call
        .registry
        .get(&arguments.sandbox_id, arguments.connect_if_missing)
        .await?;
    sandbox.code().interrupt(&arguments.context_id).await?;
    Ok(Answer::new(&status("interrupted")))
}
