//! `--init`: PID 1 of a namespace.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal};

/// Tests that make namespaces or change users need root, and fail without it.
pub(crate) fn needs_root() {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test needs root: sudo -E cargo test -p execd"
    );
}

/// Starts execd as PID 1 of a new pid namespace.
fn start(arguments: &[&str]) -> Child {
    needs_root();
    let child = Command::new("unshare")
        .args([
            "--fork",
            "--pid",
            "--mount-proc",
            "--kill-child",
            env!("CARGO_BIN_EXE_execd"),
        ])
        .args(["--init", "--port", "0", "--listen-path"])
        .arg(format!(
            "/tmp/execd-init-{}-{:?}.sock",
            std::process::id(),
            std::thread::current().id()
        ))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    crate::daemon::limit_time(child.id());
    child
}

/// The daemon itself, which is the only child of `unshare`.
fn inner(child: &Child) -> Pid {
    let path = format!("/proc/{0}/task/{0}/children", child.id());
    let children = fs::read_to_string(path).unwrap();
    Pid::from_raw(children.trim().parse().unwrap()).unwrap()
}

fn finish(mut child: Child) -> (Option<i32>, String, String) {
    let status = child.wait().unwrap();
    let (mut out, mut err) = (String::new(), String::new());
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut out)
        .unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut err)
        .unwrap();
    remove_socket();
    (
        status.code().or(status.signal().map(|signal| 128 + signal)),
        out,
        err,
    )
}

fn remove_socket() {
    let path = format!(
        "/tmp/execd-init-{}-{:?}.sock",
        std::process::id(),
        std::thread::current().id()
    );
    let _ = fs::remove_file(path);
}

#[test]
fn exits_as_the_entrypoint_does() {
    assert_eq!(
        finish(start(&[
            "--",
            "sh",
            "-c",
            "echo out; echo err >&2; exit 42"
        ]))
        .0,
        Some(42)
    );
    assert_eq!(
        finish(start(&["--", "sh", "-c", "kill -KILL $$"])).0,
        Some(137)
    );
    assert_eq!(finish(start(&["--", "true"])).0, Some(0));
    let (code, _, err) = finish(start(&["--", "/no/such/program"]));
    assert_eq!(code, Some(127));
    assert!(err.contains("/no/such/program"), "{err}");
    assert_eq!(finish(start(&["--", "/etc/passwd"])).0, Some(126));
}

#[test]
fn forwards_signals_to_the_entrypoint() {
    for (signal, number) in [(Signal::TERM, 15), (Signal::USR1, 10), (Signal::HUP, 1)] {
        let script = format!("trap 'exit 77' {number}; echo ready; while :; do sleep 0.01; done");
        let mut child = start(&["--", "sh", "-c", &script]);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        rustix::process::kill_process(inner(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(77), "signal {number}");
        remove_socket();
    }
}

#[test]
fn without_an_entrypoint_it_stays_until_told() {
    let mut child = start(&["--log-fd", "2"]);
    // It takes signals from the moment it exists: they are blocked before anything else,
    // but the program must have begun.
    let comm = format!("/proc/{}/task/{0}/children", child.id());
    let pid = loop {
        if let Ok(children) = fs::read_to_string(&comm)
            && let Ok(pid) = children.trim().parse::<i32>()
            && fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "execd\n")
            && fs::read_to_string(format!("/proc/{pid}/status"))
                .is_ok_and(|status| !status.contains("SigBlk:\t0000000000000000"))
        {
            break pid;
        }
        let ended = child.try_wait().unwrap();
        assert_eq!(ended, None, "it ended before it had begun");
    };
    rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    assert_eq!(finish(child).0, Some(0));
}

#[test]
fn collects_orphans_and_ends_everything() {
    // A grandchild whose parent dies becomes the init's; the entrypoint counts zombies.
    let script = "for i in 1 2 3 4 5; do (true & ) ; done; (exec -a stays sleep 1000 &) ; \
        while grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | grep -q . ; do \
        [ $SECONDS -lt 60 ] || exit 9; done; exit 5";
    let child = start(&["--", "bash", "-c", script]);
    assert_eq!(finish(child).0, Some(5));
}

#[test]
fn the_entrypoints_output_goes_to_the_log() {
    let mut log = tempfile::NamedTempFile::new().unwrap();
    let command = format!(
        "exec unshare --fork --pid --mount-proc {} --init --port 0 --listen-path {}.sock --log-fd 7 -- sh -c 'echo out; echo err >&2' 7>>{}",
        env!("CARGO_BIN_EXE_execd"),
        log.path().display(),
        log.path().display()
    );
    needs_root();
    let status = Command::new("sh")
        .args(["-c", &command])
        .stdin(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(0));
    let mut text = String::new();
    File::read_to_string(log.as_file_mut(), &mut text).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["err", "out"]);
    let _ = fs::remove_file(format!("{}.sock", log.path().display()));
}

/// The reaper collects any child; a command's own must reach the command. Many short ones
/// at once, so that they end while others start.
#[test]
fn the_reaper_steals_no_exit_from_a_command() {
    needs_root();
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let listener: OwnedFd = UnixListener::bind(&socket).unwrap().into();
    let mut child = Command::new("unshare")
        .args([
            "--fork",
            "--pid",
            "--mount-proc",
            "--kill-child",
            env!("CARGO_BIN_EXE_execd"),
        ])
        .args(["--init", "--port", "0", "--listen-fd", "0"])
        .stdin(Stdio::from(listener))
        .spawn()
        .unwrap();
    crate::daemon::limit_time(child.id());
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let socket = &socket;
            scope.spawn(move || {
                for number in 0..60 {
                    let code = (worker * 60 + number) % 250 + 1;
                    // An orphan each time keeps the reaper busy.
                    let body = format!(r#"{{"command":"(true &); exit {code}"}}"#);
                    let mut stream = UnixStream::connect(socket).unwrap();
                    let head = "POST /command HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
                    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
                    let mut answer = String::new();
                    stream.read_to_string(&mut answer).unwrap();
                    assert!(
                        answer.contains(&format!(r#""evalue":"{code}""#)),
                        "{answer}"
                    );
                }
            });
        }
    });
    rustix::process::kill_process(inner(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
