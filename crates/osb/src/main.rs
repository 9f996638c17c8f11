//! The multi-call binary: finds out which program it is asked to be, before anything else exists
//! in the process, and becomes it.
//!
//! The spawner must be single-threaded from its first instruction on, so nothing here may start a
//! thread or a runtime.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    match program(&arguments) {
        Program::Spawner => runtime::spawner::main(),
        Program::Gate => runtime::gate::main(arguments.into_iter().skip(2)),
        Program::Server { skip } => {
            let name = OsString::from("osb server");
            server::main(std::iter::once(name).chain(arguments.into_iter().skip(skip)))
        }
        Program::Doctor => {
            let name = OsString::from("osb doctor");
            server::doctor(std::iter::once(name).chain(arguments.into_iter().skip(2)))
        }
        Program::Cli => cli::main(arguments),
        Program::Mcp { skip } => {
            let name = OsString::from("opensandbox-mcp");
            mcp::main(std::iter::once(name).chain(arguments.into_iter().skip(skip)))
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Program {
    /// Makes sandboxes for a server; started by it and by nobody else.
    Spawner,
    /// Carries what sandboxes with a network policy may reach; started by a server and by nobody else.
    Gate,
    /// The server; `skip` arguments are not for it.
    Server { skip: usize },
    /// The MCP server; `skip` arguments are not for it.
    Mcp { skip: usize },
    /// Says what this machine can do.
    Doctor,
    /// Everything else is the command line's.
    Cli,
}

fn program(arguments: &[OsString]) -> Program {
    let name = arguments
        .first()
        .and_then(|path| Path::new(path).file_name());
    if name == Some(OsStr::new("opensandbox-server")) {
        return Program::Server { skip: 1 };
    }
    if name == Some(OsStr::new("opensandbox-mcp")) {
        return Program::Mcp { skip: 1 };
    }
    match arguments.get(1).and_then(|argument| argument.to_str()) {
        Some("spawner") => Program::Spawner,
        Some("egress-gate") => Program::Gate,
        Some("doctor") => Program::Doctor,
        Some("server") => Program::Server { skip: 2 },
        Some("mcp") => Program::Mcp { skip: 2 },
        _ => Program::Cli,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_or_the_first_argument_decides() {
        let of = |words: &[&str]| program(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(of(&["osb", "spawner"]), Program::Spawner);
        assert_eq!(of(&["osb", "egress-gate", "{}"]), Program::Gate);
        assert_eq!(of(&["osb", "egress", "get"]), Program::Cli);
        assert_eq!(
            of(&["/usr/bin/osb", "server", "--check"]),
            Program::Server { skip: 2 }
        );
        assert_eq!(
            of(&["/bin/opensandbox-server", "--check"]),
            Program::Server { skip: 1 }
        );
        assert_eq!(of(&["osb", "doctor"]), Program::Doctor);
        assert_eq!(of(&["osb", "mcp"]), Program::Mcp { skip: 2 });
        assert_eq!(of(&["/bin/opensandbox-mcp"]), Program::Mcp { skip: 1 });
        assert_eq!(of(&["osb", "sandbox", "list"]), Program::Cli);
        assert_eq!(of(&["osb"]), Program::Cli);
        assert_eq!(of(&[]), Program::Cli);
    }
}
