//! Commands and files inside, through the daemon's API.

use serde_json::json;

use super::daemon::Daemon;
use super::world::{Failure, World, ensure};
use super::{Case, case};
use crate::backend::Target;
use api::egress::policy::EgressPolicy;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(a_command_runs_and_its_end_is_true, [Shell]),
        case!(the_environment_is_what_was_asked_for, [Shell]),
        case!(the_entrypoint_has_the_environment_too, [Shell]),
        case!(the_token_is_in_no_environment, [Shell]),
        case!(the_id_is_in_the_environment, [Shell]),
        case!(a_command_runs_where_it_is_told, [Shell]),
        case!(files_go_in_and_out_whole, [Shell]),
        case!(without_the_token_nothing_is_done, [Shell]),
        case!(two_sandboxes_share_no_files, [Shell]),
        case!(two_sandboxes_share_no_processes, [Shell]),
        case!(the_daemon_is_the_first_process, [Shell]),
        case!(cut_off_means_loopback_only, [Shell, NetworkNone]),
    ]
}

async fn a_command_runs_and_its_end_is_true(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    let output = world.exec(&made, "echo out; echo err >&2; exit 3").await?;
    ensure!(output.code == Some(3), "{output:?}");
    ensure!(output.stdout.trim_end() == "out", "{output:?}");
    ensure!(output.stderr.trim_end() == "err", "{output:?}");
    Ok(())
}

async fn the_environment_is_what_was_asked_for(world: &World) -> Result<(), Failure> {
    let mut spec = world.spec();
    let value = "one two=\"three\" $four 'five'";
    spec.env.insert("ASKED".to_owned(), value.to_owned());
    let made = world.create(spec).await?;
    let seen = world.output(&made, "printf '%s' \"$ASKED\"").await?;
    ensure!(seen.trim_end_matches('\n') == value, "came as {seen:?}");
    let path = world.output(&made, "echo $PATH").await?;
    ensure!(
        path.contains("/bin"),
        "the image's own PATH is gone: {path:?}"
    );
    Ok(())
}

async fn the_entrypoint_has_the_environment_too(world: &World) -> Result<(), Failure> {
    let mut spec = world.script("echo value=$ASKED");
    spec.env.insert("ASKED".to_owned(), "yes".to_owned());
    let events = world.backend().events();
    let made = world.create(spec).await?;
    world.until_exited(&made.id, events).await?;
    let query = crate::backend::LogQuery {
        tail_lines: 100,
        since: None,
        max_bytes: 1 << 16,
    };
    let logs = world.backend().logs(&made.id, query).await?;
    ensure!(logs.text.contains("value=yes"), "{:?}", logs.text);
    Ok(())
}

async fn the_token_is_in_no_environment(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    let seen = world
        .output(
            &made,
            "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null; :",
        )
        .await?;
    ensure!(
        !seen.contains(&made.token),
        "the token can be read by user code"
    );
    Ok(())
}

async fn the_id_is_in_the_environment(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    let seen = world.output(&made, "echo $OPENSANDBOX_ID").await?;
    ensure!(seen.trim_end() == made.id.as_str(), "{seen:?}");
    Ok(())
}

async fn a_command_runs_where_it_is_told(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    let mut daemon = world.daemon(&made).await?;
    let request = json!({ "command": "pwd", "cwd": "/tmp" });
    let output = daemon.start(request).await?.finish().await?;
    ensure!(output.stdout.trim_end() == "/tmp", "{output:?}");
    Ok(())
}

async fn files_go_in_and_out_whole(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    let content: Vec<u8> = (0..300_000_u32).map(|n| (n * 31 % 251) as u8).collect();
    let mut daemon = world.daemon(&made).await?;
    daemon.upload("/tmp/conformance.bin", &content).await?;
    let back = daemon.download("/tmp/conformance.bin").await?;
    ensure!(
        back == content,
        "{} bytes went in, {} came out",
        content.len(),
        back.len()
    );
    let size = world.output(&made, "wc -c < /tmp/conformance.bin").await?;
    ensure!(size.trim() == "300000", "inside it has {size:?} bytes");
    Ok(())
}

async fn without_the_token_nothing_is_done(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    for token in [None, Some("wrong".to_owned())] {
        let stream = world.backend().connect(&made.id, Target::Control).await?;
        let mut daemon = Daemon::open(stream, token.clone()).await?;
        let answer = daemon.run("echo done").await;
        let refused = answer
            .as_ref()
            .is_err_and(|failure| failure.0.contains("401"));
        ensure!(refused, "with token {token:?}: {answer:?}");
    }
    Ok(())
}

async fn two_sandboxes_share_no_files(world: &World) -> Result<(), Failure> {
    let (one, two) = (world.plain().await?, world.plain().await?);
    world
        .output(
            &one,
            "echo mine > /conformance-file; echo mine > /tmp/conformance-file",
        )
        .await?;
    let look =
        "cat /conformance-file /tmp/conformance-file /dev/shm/conformance-file 2>/dev/null; :";
    let seen = world.output(&two, look).await?;
    ensure!(seen.is_empty(), "the other one reads {seen:?}");
    Ok(())
}

async fn two_sandboxes_share_no_processes(world: &World) -> Result<(), Failure> {
    let one = world.create(world.script("exec sleep 86399")).await?;
    let two = world.plain().await?;
    let look = "cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' '";
    let inside = world.output(&one, look).await?;
    ensure!(
        inside.contains("86399"),
        "its own entrypoint is not seen: {inside:?}"
    );
    let outside = world.output(&two, look).await?;
    ensure!(
        !outside.contains("86399"),
        "the other one's processes are seen: {outside:?}"
    );
    Ok(())
}

async fn the_daemon_is_the_first_process(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    let first = world
        .output(&made, "cat /proc/1/cmdline | tr '\\0' ' '")
        .await?;
    ensure!(first.contains("execd"), "process 1 is {first:?}");
    Ok(())
}

async fn cut_off_means_loopback_only(world: &World) -> Result<(), Failure> {
    let mut spec = world.spec();
    spec.network = EgressPolicy::DENY_ALL;
    let made = world.create(spec).await?;
    let devices = world.output(&made, "cat /proc/net/dev").await?;
    let names: Vec<_> = devices
        .lines()
        .filter_map(|line| line.split_once(':').map(|(name, _)| name.trim()))
        .filter(|name| *name != "lo")
        .collect();
    let routes = world.output(&made, "cat /proc/net/route").await?;
    // Kernels put unused tunnel devices into every namespace; without a route they reach nothing.
    ensure!(
        routes.lines().count() <= 1,
        "with devices {names:?} it has routes {routes:?}"
    );
    Ok(())
}
