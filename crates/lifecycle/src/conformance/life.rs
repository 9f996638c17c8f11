//! Making, seeing and ending sandboxes.

use std::time::Duration;

use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;

use super::world::{Failure, SOON, World, ensure};
use super::{Case, case};
use crate::backend::{Error, LogQuery, ObservedState, Spec};

/// Sandboxes made at the same time.
const AT_ONCE: usize = 32;

/// More than any case writes.
const ALL: LogQuery = LogQuery {
    tail_lines: 1000,
    since: None,
    max_bytes: 1 << 20,
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(is_healthy, []),
        case!(a_new_sandbox_is_listed_with_its_labels, []),
        case!(a_new_sandbox_answers_at_once, [Shell]),
        case!(creation_says_what_was_started_and_when, [Shell]),
        case!(an_id_is_used_once, []),
        case!(a_deleted_sandbox_is_gone, []),
        case!(deletion_can_be_repeated, []),
        case!(deletion_ends_what_runs_inside, [Shell]),
        case!(
            deletion_with_grace_lets_the_entrypoint_end,
            [Shell, HostVolumes]
        ),
        case!(deletion_with_grace_kills_what_does_not_end, [Shell]),
        case!(an_exit_code_is_reported, [Shell]),
        case!(a_good_end_is_reported, [Shell]),
        case!(an_end_by_signal_is_reported, [Shell]),
        case!(an_ended_sandbox_can_be_deleted, [Shell]),
        case!(logs_hold_what_the_entrypoint_wrote, [Shell]),
        case!(logs_are_cut_as_asked, [Shell]),
        case!(logs_of_an_ended_sandbox_can_be_read, [Shell]),
        case!(logs_are_followed_to_the_end, [Shell]),
        case!(an_unfinished_last_line_is_followed, [Shell]),
        case!(logs_of_a_deleted_sandbox_end, [Shell]),
        case!(a_description_carries_no_secret, []),
        case!(many_are_made_at_once, []),
        case!(a_failed_creation_leaves_nothing, []),
    ]
}

async fn is_healthy(world: &World) -> Result<(), Failure> {
    Ok(world.backend().health().await?)
}

async fn a_new_sandbox_is_listed_with_its_labels(world: &World) -> Result<(), Failure> {
    let mut spec = world.spec();
    spec.labels.insert(
        "colour".to_owned(),
        "blue, \"quoted\"\nand broken".to_owned(),
    );
    let labels = spec.labels.clone();
    let made = world.create(spec).await?;
    let listed = world.backend().list().await?;
    let found = listed.iter().find(|observed| observed.id == made.id);
    let found = found.ok_or(Failure("it is not listed".to_owned()))?;
    ensure!(
        found.state == ObservedState::Running,
        "listed as {:?}",
        found.state
    );
    ensure!(
        found.labels == labels,
        "labels came back as {:?}",
        found.labels
    );
    let seen = world.backend().inspect(&made.id).await?;
    ensure!(
        seen.labels == labels && seen.state == found.state,
        "inspect says {seen:?}"
    );
    Ok(())
}

async fn a_new_sandbox_answers_at_once(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    let status = world.daemon(&made).await?.ping().await?;
    ensure!(status == 200, "ping answered {status}");
    Ok(())
}

async fn creation_says_what_was_started_and_when(world: &World) -> Result<(), Failure> {
    let spec = world.spec();
    world.note(&spec);
    let (before, entrypoint) = (Timestamp::now(), spec.entrypoint.clone());
    let created = world.backend().create(spec).await?;
    ensure!(
        Some(&created.entrypoint) == entrypoint.as_ref(),
        "{:?}",
        created.entrypoint
    );
    ensure!(
        created.platform.os == "linux",
        "platform {:?}",
        created.platform
    );
    // Engines read other clocks; a minute tells a wrong unit or zone.
    let off = created.started_at.duration_since(before).abs();
    ensure!(
        off < SignedDuration::from_mins(1),
        "started at {}",
        created.started_at
    );
    Ok(())
}

async fn an_id_is_used_once(world: &World) -> Result<(), Failure> {
    let spec = world.spec();
    let made = world.create(spec.clone()).await?;
    let again = world.backend().create(spec).await;
    ensure!(again.is_err(), "the second creation succeeded");
    let seen = world.backend().inspect(&made.id).await?;
    ensure!(
        seen.state == ObservedState::Running,
        "the first one is now {:?}",
        seen.state
    );
    Ok(())
}

async fn a_deleted_sandbox_is_gone(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    world.delete(&made.id).await?;
    let inspected = world.backend().inspect(&made.id).await;
    ensure!(
        matches!(inspected, Err(Error::NotFound(_))),
        "inspect says {inspected:?}"
    );
    let listed = world.backend().list().await?;
    ensure!(listed.iter().all(|o| o.id != made.id), "it is still listed");
    Ok(())
}

async fn deletion_can_be_repeated(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    world.delete(&made.id).await?;
    world.delete(&made.id).await?;
    world.delete(&world.spec().id).await
}

async fn deletion_ends_what_runs_inside(world: &World) -> Result<(), Failure> {
    let made = world.plain().await?;
    let command = "trap '' TERM HUP INT; (setsid sleep 100000 &) ; setsid sleep 100000 & echo ok";
    world.output(&made, command).await?;
    world.delete(&made.id).await
}

async fn deletion_with_grace_lets_the_entrypoint_end(world: &World) -> Result<(), Failure> {
    let directory = world.directory()?;
    let script = "trap 'echo bye > /mnt/volume/last; exit 0' TERM; echo up > /mnt/volume/first; \
                  while :; do sleep 100000 & wait $!; done";
    let mut spec = world.script(script);
    spec.volumes.push(world.host_volume(&directory, false));
    let made = world.create(spec).await?;
    // The daemon answers before the entrypoint has set its trap; its first file says it has.
    let up = "until [ -s /mnt/volume/first ]; do :; done";
    world.output(&made, up).await?;
    world
        .backend()
        .delete(&made.id, Duration::from_secs(20))
        .await?;
    let last = std::fs::read_to_string(directory.join("last"))?;
    ensure!(last == "bye\n", "the entrypoint wrote {last:?}");
    Ok(())
}

async fn deletion_with_grace_kills_what_does_not_end(world: &World) -> Result<(), Failure> {
    let script = "trap '' TERM; while :; do sleep 100000 & wait $!; done";
    let made = world.create(world.script(script)).await?;
    world
        .backend()
        .delete(&made.id, Duration::from_millis(200))
        .await?;
    world.delete(&made.id).await
}

async fn ends_with(world: &World, script: &str) -> Result<crate::backend::Exit, Failure> {
    let events = world.backend().events();
    let made = world.create(world.script(script)).await?;
    world.until_exited(&made.id, events).await
}

async fn an_exit_code_is_reported(world: &World) -> Result<(), Failure> {
    let exit = ends_with(world, "exit 7").await?;
    ensure!(exit.code == Some(7) && !exit.oom_killed, "{exit:?}");
    Ok(())
}

async fn a_good_end_is_reported(world: &World) -> Result<(), Failure> {
    let exit = ends_with(world, "true").await?;
    ensure!(exit.code == Some(0) && !exit.oom_killed, "{exit:?}");
    Ok(())
}

async fn an_end_by_signal_is_reported(world: &World) -> Result<(), Failure> {
    let exit = ends_with(world, "kill -9 $$").await?;
    // The supervisor ends with 128 + the signal, as shells do.
    let is_told = exit.code == Some(137) || exit.signal == Some(9);
    ensure!(is_told && !exit.oom_killed, "{exit:?}");
    Ok(())
}

async fn an_ended_sandbox_can_be_deleted(world: &World) -> Result<(), Failure> {
    let events = world.backend().events();
    let made = world.create(world.script("exit 1")).await?;
    world.until_exited(&made.id, events).await?;
    world.delete(&made.id).await
}

async fn logs_hold_what_the_entrypoint_wrote(world: &World) -> Result<(), Failure> {
    let events = world.backend().events();
    let made = world
        .create(world.script("echo to-out; echo to-err >&2"))
        .await?;
    world.until_exited(&made.id, events).await?;
    let logs = world.backend().logs(&made.id, ALL).await?;
    for line in ["to-out", "to-err"] {
        ensure!(logs.text.contains(line), "no {line:?} in {:?}", logs.text);
    }
    ensure!(!logs.truncated, "nothing was left out of {:?}", logs.text);
    Ok(())
}

async fn logs_are_cut_as_asked(world: &World) -> Result<(), Failure> {
    let events = world.backend().events();
    let script = "i=0; while [ $i -lt 50 ]; do echo line-$i; i=$((i+1)); done";
    let made = world.create(world.script(script)).await?;
    world.until_exited(&made.id, events).await?;
    let tail = world
        .backend()
        .logs(
            &made.id,
            LogQuery {
                tail_lines: 3,
                ..ALL
            },
        )
        .await?;
    let lines: Vec<_> = tail.text.lines().collect();
    ensure!(
        lines == ["line-47", "line-48", "line-49"],
        "the last three: {lines:?}"
    );
    ensure!(tail.truncated, "older lines were left out");
    let bytes = world
        .backend()
        .logs(
            &made.id,
            LogQuery {
                max_bytes: 20,
                ..ALL
            },
        )
        .await?;
    ensure!(bytes.text.len() <= 20, "{} bytes", bytes.text.len());
    ensure!(
        bytes.text.contains("line-49"),
        "the newest are kept: {:?}",
        bytes.text
    );
    Ok(())
}

async fn logs_of_an_ended_sandbox_can_be_read(world: &World) -> Result<(), Failure> {
    let events = world.backend().events();
    let made = world
        .create(world.script("echo last words; exit 3"))
        .await?;
    world.until_exited(&made.id, events).await?;
    let logs = world.backend().logs(&made.id, ALL).await?;
    ensure!(logs.text.contains("last words"), "{:?}", logs.text);
    Ok(())
}

/// What comes until `word` has, or the end where there is none.
async fn told(pieces: &mut mpsc::Receiver<String>, word: Option<&str>) -> Result<String, Failure> {
    let mut text = String::new();
    let wait = async {
        while let Some(piece) = pieces.recv().await {
            text.push_str(&piece);
            if word.is_some_and(|word| text.contains(word)) {
                return true;
            }
        }
        word.is_none()
    };
    match tokio::time::timeout(SOON, wait).await {
        Ok(true) => Ok(text),
        _ => Err(Failure(format!(
            "waited for {word:?}, and was told {text:?}"
        ))),
    }
}

async fn logs_are_followed_to_the_end(world: &World) -> Result<(), Failure> {
    let script =
        "echo old; echo first; mkfifo /tmp/go; read x < /tmp/go; echo second; echo last; exit 3";
    let made = world.create(world.script(script)).await?;
    let mut all = world.backend().follow_logs(&made.id, ALL).await?;
    let text = told(&mut all, Some("first\n")).await?;
    ensure!(text.ends_with("old\nfirst\n"), "{text:?}");
    let one = LogQuery {
        tail_lines: 1,
        ..ALL
    };
    let mut tail = world.backend().follow_logs(&made.id, one).await?;
    let text = told(&mut tail, Some("first\n")).await?;
    ensure!(text == "first\n", "{text:?}");
    let go = "until [ -p /tmp/go ]; do :; done; echo go > /tmp/go";
    // The daemon ends with the entrypoint, so this command's own end may be cut off.
    let _ = tokio::time::timeout(SOON, world.exec(&made, go)).await;
    for pieces in [&mut all, &mut tail] {
        let text = told(pieces, None).await?;
        ensure!(text.starts_with("second\nlast\n"), "{text:?}");
    }
    Ok(())
}

async fn an_unfinished_last_line_is_followed(world: &World) -> Result<(), Failure> {
    let script = "echo first; mkfifo /tmp/go; read x < /tmp/go; printf 'last words'";
    let made = world.create(world.script(script)).await?;
    let mut pieces = world.backend().follow_logs(&made.id, ALL).await?;
    let begun = told(&mut pieces, Some("first\n")).await?;
    let go = "until [ -p /tmp/go ]; do :; done; echo go > /tmp/go";
    // The daemon ends with the entrypoint, so this command's own end may be cut off.
    let _ = tokio::time::timeout(SOON, world.exec(&made, go)).await;
    let rest = told(&mut pieces, None).await?;
    let text = format!("{begun}{rest}");
    ensure!(text.matches("first\n").count() == 1, "told twice: {text:?}");
    ensure!(rest.contains("last words"), "{text:?}");
    Ok(())
}

async fn logs_of_a_deleted_sandbox_end(world: &World) -> Result<(), Failure> {
    let made = world.create(world.script("echo up; sleep 1000")).await?;
    let mut pieces = world.backend().follow_logs(&made.id, ALL).await?;
    told(&mut pieces, Some("up\n")).await?;
    world.delete(&made.id).await?;
    told(&mut pieces, None).await.map(drop)
}

async fn a_description_carries_no_secret(world: &World) -> Result<(), Failure> {
    let mut spec = world.spec();
    spec.env
        .insert("PASSWORD".to_owned(), "open-sesame".to_owned());
    spec.labels
        .insert(crate::labels::RECORD.to_owned(), "sealed-record".to_owned());
    let made = world.create(spec).await?;
    let text = world.backend().describe(&made.id).await?;
    ensure!(!text.trim().is_empty(), "it says nothing");
    for secret in ["open-sesame", "sealed-record", made.token.as_str()] {
        ensure!(!text.contains(secret), "{secret:?} is in {text:?}");
    }
    Ok(())
}

async fn many_are_made_at_once(world: &World) -> Result<(), Failure> {
    let specs: Vec<Spec> = (0..AT_ONCE).map(|_| world.spec()).collect();
    let made = join_all(specs.into_iter().map(|spec| world.create(spec))).await;
    let made = made.into_iter().collect::<Result<Vec<_>, _>>()?;
    if world.facts.has_shell {
        let pings = join_all(made.iter().map(|made| async {
            let status = world.daemon(made).await?.ping().await?;
            ensure!(status == 200, "ping answered {status}");
            Ok::<_, Failure>(())
        }));
        pings.await.into_iter().collect::<Result<Vec<_>, _>>()?;
    }
    let deleted = join_all(made.iter().map(|made| world.delete(&made.id))).await;
    deleted.into_iter().collect::<Result<Vec<_>, _>>()?;
    let listed = world.backend().list().await?;
    let left = listed
        .iter()
        .filter(|o| made.iter().any(|made| made.id == o.id))
        .count();
    ensure!(left == 0, "{left} are still listed");
    Ok(())
}

async fn a_failed_creation_leaves_nothing(world: &World) -> Result<(), Failure> {
    let source = crate::backend::Source::Image {
        reference: world.facts.missing_image.clone(),
        auth: None,
    };
    let spec = Spec {
        source,
        ..world.spec()
    };
    let id = world.note(&spec).id;
    let created = world.backend().create(spec).await;
    ensure!(
        created.is_err(),
        "it was made of an image that does not exist"
    );
    let listed = world.backend().list().await?;
    ensure!(
        listed.iter().all(|o| o.id != id),
        "it is listed all the same"
    );
    world.delete(&id).await
}
