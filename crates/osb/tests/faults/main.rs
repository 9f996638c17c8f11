//! The server on the embedded runtime while things die under it: the server itself, the daemon in
//! a sandbox, the spawner, the database.
//!
//! Nothing acknowledged may be lost, nothing may leak, nothing may hang. Needs root and an execd
//! beside osb.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]
#![expect(
    clippy::print_stderr,
    reason = "a test that does not run says so, and a failed one shows the server's log"
)]

mod subject;

use std::collections::BTreeSet;
use std::net::TcpStream;

use subject::{DataDir, SmallDisk};

#[test]
fn a_killed_server_loses_nothing() {
    let Some(place) = DataDir::new() else { return };
    let server = place.start();
    let id = server.create();
    let token = server.token(&id);
    assert!(
        server
            .command(&id, "echo kept > /tmp/f; echo done")
            .contains("done")
    );
    server.kill();

    let server = place.start();
    let read = server.get(&format!("/v1/sandboxes/{id}")).expect(200);
    assert_eq!(read["status"]["state"], "Running");
    assert_eq!(server.token(&id), token, "clients keep their endpoint");
    assert!(server.command(&id, "cat /tmp/f").contains("kept"));
    server.delete(&id);
    assert_eq!(place.sandboxes(), BTreeSet::new());
}

#[test]
fn a_server_killed_amid_creates_keeps_what_it_acknowledged_and_nothing_else() {
    const ASKED: usize = 24;
    let Some(place) = DataDir::new() else { return };
    let server = place.start();
    let (tell, told) = std::sync::mpsc::sync_channel(ASKED);
    let workers: Vec<_> = (0..ASKED)
        .map(|_| {
            let (client, tell) = (server.client(), tell.clone());
            std::thread::spawn(move || {
                if let Some(id) = client.try_create() {
                    let _ = tell.send(id);
                }
            })
        })
        .collect();
    drop(tell);
    let mut acknowledged: BTreeSet<String> = told.iter().take(ASKED / 3).collect();
    server.kill();
    acknowledged.extend(told.iter());
    for worker in workers {
        worker.join().unwrap();
    }

    let server = place.start();
    let listed = server.list();
    assert!(
        listed.is_superset(&acknowledged),
        "{acknowledged:?} not all in {listed:?}"
    );
    // What was recorded and not yet made is taken up; its endpoint waits for that.
    for id in &listed {
        server.token(id);
    }
    assert_eq!(
        place.sandboxes(),
        listed,
        "what is on the host is what is known"
    );
    for id in &acknowledged {
        let read = server.get(&format!("/v1/sandboxes/{id}")).expect(200);
        assert_eq!(read["status"]["state"], "Running", "{read}");
    }
    for id in &listed {
        server.delete(id);
    }
    assert_eq!(place.sandboxes(), BTreeSet::new());
}

#[test]
fn a_killed_daemon_makes_its_sandbox_failed() {
    let Some(place) = DataDir::new() else { return };
    let server = place.start();
    let (id, other) = (server.create(), server.create());
    subject::kill(place.daemon_of(&id));
    server.wait_for_event(|event| {
        event["sandboxId"] == id.as_str() && event["status"]["state"] == "Failed"
    });
    let refused = server.post(&format!("/v1/sandboxes/{id}/pause"), "{}");
    assert_eq!(refused.status, 409, "{refused:?}");
    assert!(server.command(&other, "echo alive").contains("alive"));
    server.delete(&id);
    server.delete(&other);
    assert_eq!(place.sandboxes(), BTreeSet::new());
}

#[test]
fn a_killed_spawner_is_replaced() {
    let Some(place) = DataDir::new() else { return };
    let server = place.start();
    let before = server.create();
    subject::kill(server.spawner());
    let after = server.create();
    assert!(server.command(&after, "echo alive").contains("alive"));
    server.delete(&before);
    server.delete(&after);
    assert_eq!(place.sandboxes(), BTreeSet::new());
}

#[test]
fn a_store_in_use_or_damaged_is_refused_with_the_reason() {
    let Some(place) = DataDir::new() else { return };
    let server = place.start();
    let refused = place.start_refused();
    assert!(refused.contains("another"), "{refused}");
    server.stop();
    let database = place.path().join("opensandbox.db");
    for file in ["opensandbox.db-wal", "opensandbox.db-shm"] {
        let _ = std::fs::remove_file(place.path().join(file));
    }
    std::fs::write(&database, vec![0x5a; 8192]).unwrap();
    let refused = place.start_refused();
    assert!(refused.contains("damaged"), "{refused}");
    // Moved away, as the message says, it starts anew.
    std::fs::remove_file(&database).unwrap();
    place.start().stop();
}

#[test]
fn a_lost_database_is_made_anew_and_what_runs_is_taken_back() {
    let Some(place) = DataDir::new() else { return };
    let server = place.start();
    let id = server.create();
    assert!(
        server
            .command(&id, "echo kept > /tmp/f; echo done")
            .contains("done")
    );
    server.kill();
    for file in ["opensandbox.db", "opensandbox.db-wal", "opensandbox.db-shm"] {
        std::fs::remove_file(place.path().join(file)).unwrap();
    }

    let server = place.start();
    assert_eq!(server.list(), BTreeSet::from([id.clone()]));
    let read = server.get(&format!("/v1/sandboxes/{id}")).expect(200);
    assert_eq!(read["status"]["state"], "Running");
    server.delete(&id);
    server.stop();
    assert_eq!(place.sandboxes(), BTreeSet::new());
}

#[test]
fn a_full_disk_refuses_changes_and_takes_them_when_there_is_room() {
    let Some(place) = DataDir::new() else { return };
    let disk = SmallDisk::new(place.path().join("disk"));
    let settings = [format!("store.path={}/osb.db", disk.path().display())];
    let server = place.start_with(&settings);
    let kept = server.create();
    disk.fill();
    let refused = server.try_create_answer().expect(503);
    assert_eq!(refused["code"], "UNAVAILABLE", "{refused}");
    server.get("/health").expect(503);
    assert_eq!(server.list(), BTreeSet::from([kept.clone()]));
    // What is there goes on.
    assert!(server.command(&kept, "echo alive").contains("alive"));
    disk.empty();
    server.get("/health").expect(200);
    let after = server.create();
    server.kill();

    let server = place.start_with(&settings);
    assert_eq!(server.list(), BTreeSet::from([kept.clone(), after.clone()]));
    server.delete(&kept);
    server.delete(&after);
    server.stop();
    assert_eq!(place.sandboxes(), BTreeSet::new());
}

#[test]
fn thousands_of_idle_connections_are_no_trouble() {
    const IDLE: usize = 5000;
    let Some(place) = DataDir::new() else { return };
    let server = place.start();
    let idle: Vec<_> = (0..IDLE)
        .map(|_| TcpStream::connect(&server.client().address).unwrap())
        .collect();
    let id = server.create();
    assert!(server.command(&id, "echo alive").contains("alive"));
    server.delete(&id);
    drop(idle);
    server.get("/health").expect(200);
}
