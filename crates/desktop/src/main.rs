//! The program: reads its arguments, listens, says where on standard output, and serves.

use std::io::Write as _;
use std::process::ExitCode;

use desktop::args::{self, Error, USAGE};
use desktop::{Options, Server};

/// What the shell answers to a wrong command line.
const EXIT_USAGE: u8 = 2;
/// Everything that takes time runs on other threads; two are enough to carry bytes.
const WORKERS: usize = 2;

fn main() -> ExitCode {
    match args::parse(std::env::args().skip(1)) {
        Ok(options) => run(options),
        Err(Error::Help) => {
            let _ = std::io::stdout().write_all(USAGE.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "desktop: {error}");
            ExitCode::from(EXIT_USAGE)
        }
    }
}

fn run(options: Options) -> ExitCode {
    let served = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .and_then(|runtime| runtime.block_on(serve(options)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "desktop: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(options: Options) -> std::io::Result<()> {
    let server = Server::bind(options).await?;
    for address in server.addresses()? {
        writeln!(std::io::stdout(), "listening on http://{address}")?;
    }
    server.serve().await
}
