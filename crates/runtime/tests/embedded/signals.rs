//! The signal state that PID 1 of a sandbox starts with. execd takes up what it needs within a
//! millisecond and cannot be watched before that, so this program stands in for it.

use std::process::ExitCode;

use lifecycle::backend::Event;
use runtime::Embedded;

use crate::stage::{Stage, config, create, delete, settled, soon, spec};

/// TERM, INT, HUP, QUIT, USR1 and USR2: what execd passes on to the entrypoint.
const FORWARDED: u64 = 0x4a07;

/// PIPE, which a program in Rust ignores by itself, and nothing that the spawner ignores.
const IGNORED: u64 = 0x1000;

/// Two that the C library keeps for itself and lets nobody change: as they were for this test.
const LIBC_OWN: u64 = 0x1_8000_0000;

/// What this program does as PID 1: says what it was started with, and ends.
pub(crate) fn tell() -> ExitCode {
    match std::fs::read_to_string("/proc/self/status") {
        Ok(status) => {
            println!("{status}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// A signal that comes before execd listens must wait, not be lost or end the sandbox: PID 1 of a
/// namespace ignores what it has no handler for, and a stop right after a start would hang.
pub(crate) async fn those_that_execd_forwards_wait_for_it(stage: Stage) {
    let mut config = config(&stage.data_dir());
    config.execd = std::env::current_exe().unwrap();
    let backend = soon("the backend to open", Embedded::open(config))
        .await
        .unwrap();
    let mut events = lifecycle::backend::Backend::events(&backend);
    create(&backend, spec("signals")).await.unwrap();
    let event = soon("PID 1 to end", events.recv()).await;
    let Ok(Event::Exited { exit, .. }) = event else {
        panic!("{event:?}")
    };
    let log = stage.data_dir().join("sandboxes/signals/log");
    let status = std::fs::read_to_string(log).unwrap();
    assert_eq!(exit.code, Some(0), "{status}");
    let signals = |what: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(what));
        let set = line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        set.unwrap_or_else(|| panic!("no {what} in {status}"))
    };
    assert_eq!(signals("SigBlk:"), FORWARDED);
    assert_eq!(signals("SigIgn:") & !LIBC_OWN, IGNORED);
    delete(&backend, "signals").await;
    settled(&backend).await;
}
