//! What each command does. Every function gets the application and its arguments, prints its
//! results, and returns the exit code.

mod access;
mod bench;
mod code;
mod command;
mod completion;
mod config;
mod copy;
mod create;
mod detached;
mod diagnostics;
mod egress;
mod events;
mod file;
mod forward;
mod inventory;
mod launch;
mod lifetime;
mod local;
mod logs;
mod make;
mod manage;
mod manual;
mod request_file;
mod run;
mod sandbox;
mod shell;
mod skills;
mod snapshot;
mod stats;
mod template;
mod up;
mod url;
mod vault;
mod version;

pub use code::Choice;

use crate::app::App;
use crate::args::Command;
use crate::error::Error;
use crate::interrupts::Interrupts;

/// What a command returns: its exit code.
type Outcome = Result<u8, Error>;

/// It went well.
const DONE: u8 = 0;

/// Does what was asked.
pub(crate) async fn run(app: App, command: Command) -> Outcome {
    let app = &app;
    match command {
        Command::Run(args) => run::run(app, &args).await,
        Command::Exec(args) => run::exec(app, &args).await,
        Command::Shell(args) => shell::shell(app, &args).await,
        Command::Attach(args) => shell::attach(app, &args).await,
        Command::Code(args) => code::run(app, &args).await,
        Command::Cp(args) => until_interrupted(copy::run(app, &args)).await,
        Command::Logs(args) => logs::run(app, &args).await,
        Command::PortForward(args) => forward::run(app, &args).await,
        Command::Url(args) => url::run(app, &args).await,
        Command::Ls(args) => sandbox::list_all(app, &args).await,
        Command::Ps(args) => sandbox::list_living(app, &args).await,
        Command::Stop(args) => manage::stop(app, &args).await,
        Command::Start(args) => manage::start(app, &args).await,
        Command::Rename(args) => manage::rename(app, &args).await,
        Command::Inspect(args) => manage::inspect(app, &args).await,
        Command::System(args) => manage::system(app, &args).await,
        Command::Attend(args) => detached::attend(app, &args).await,
        Command::Rm(args) => sandbox::remove(app, &args).await,
        Command::Stats(args) => stats::run(app, &args).await,
        Command::Events(args) => events::run(app, &args).await,
        Command::Sandbox(args) => sandbox::run(app, args).await,
        Command::Snapshot(args) => snapshot::run(app, args).await,
        Command::Template(args) => template::run(app, args).await,
        Command::Command(args) => command::run(app, args).await,
        Command::File(args) => until_interrupted(file::run(app, args)).await,
        Command::Egress(args) => egress::run(app, args).await,
        Command::CredentialVault(args) => vault::run(app, args).await,
        Command::Diagnostics(args) => diagnostics::stable(app, args).await,
        Command::Devops(args) => diagnostics::devops(app, args).await,
        Command::Image(args) => until_interrupted(inventory::image(app, args)).await,
        Command::Volume(args) => inventory::volume(app, args).await,
        Command::Key(args) => access::key(app, args).await,
        Command::Tenant(args) => access::tenant(app, args).await,
        Command::Config(args) => config::run(app, args),
        Command::Skills(args) => skills::run(app, &args),
        Command::Bench(args) => bench::run(app, &args).await,
        Command::Up(args) => up::up(app, &args).await,
        Command::Down(args) => up::down(app, &args).await,
        Command::Version => version::run(app).await,
        Command::Completions(args) => completion::completions(&args),
        Command::Complete(args) => completion::complete(app, &args).await,
        Command::Man(args) => manual::pages(&args),
        Command::Server(_) => Err(elsewhere("server")),
        Command::Doctor(_) => Err(elsewhere("doctor")),
        Command::Mcp(_) => Err(elsewhere("mcp")),
    }
}

/// Does the work to its end, or leaves it at Ctrl-C: what was staged goes with it, and so does the
/// line that says how far it is.
async fn until_interrupted(work: impl Future<Output = Outcome>) -> Outcome {
    let mut interrupts = Interrupts::listen()?;
    tokio::select! {
        outcome = work => outcome,
        code = interrupts.next() => Ok(code),
    }
}

/// Parts of the program that are chosen before anything else is read.
fn elsewhere(name: &str) -> Error {
    Error::Usage(format!(
        "`{name}` must be the first word, its options behind it: osb {name} …"
    ))
}
