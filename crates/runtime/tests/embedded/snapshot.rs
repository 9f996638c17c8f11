//! Snapshots as a new sandbox sees them.

use lifecycle::backend::{Backend, ObservedState, Source};

use crate::client::run;
use crate::stage::{Stage, create, delete, id, settled, soon, spec};

pub(crate) async fn what_is_written_is_in_the_snapshot_and_later_writes_are_not(stage: Stage) {
    let backend = stage.open().await;
    create(&backend, spec("first")).await.unwrap();
    run(
        &backend,
        "first",
        "echo before > /root/file; rm /etc/passwd",
    )
    .await;
    let snapshot = "kept".parse().unwrap();
    let details = backend.snapshot(&id("first"), &snapshot).await.unwrap();
    assert!(details.size_bytes > 0);
    run(&backend, "first", "echo after > /root/file").await;
    let mut second = spec("second");
    second.source = Source::Snapshot(snapshot.clone());
    create(&backend, second).await.unwrap();
    let look = "cat /root/file; ls /etc/passwd 2>/dev/null | wc -l; cat /etc/hostname";
    assert_eq!(run(&backend, "second", look).await, "before\n0\nsecond\n");
    assert!(
        backend.delete_snapshot(&snapshot).await.is_err(),
        "a sandbox stands on it"
    );
    delete(&backend, "first").await;
    delete(&backend, "second").await;
    settled(&backend).await;
    backend.delete_snapshot(&snapshot).await.unwrap();
    assert!(backend.list_snapshots().await.unwrap().is_empty());
}

pub(crate) async fn an_ended_sandbox_gives_its_layer_away_and_can_do_so_again(stage: Stage) {
    let backend = stage.open().await;
    let mut events = backend.events();
    let mut short = spec("short");
    short.entrypoint = Some(
        ["sh", "-c", "echo text > /root/file"]
            .map(str::to_owned)
            .to_vec(),
    );
    create(&backend, short).await.unwrap();
    soon("the sandbox to end", events.recv()).await.unwrap();
    let observed = backend.inspect(&id("short")).await.unwrap();
    assert!(
        matches!(observed.state, ObservedState::Exited(_)),
        "{observed:?}"
    );
    for name in ["one", "two"] {
        backend
            .snapshot(&id("short"), &name.parse().unwrap())
            .await
            .unwrap();
        let mut next = spec(name);
        next.source = Source::Snapshot(name.parse().unwrap());
        create(&backend, next).await.unwrap();
        assert_eq!(run(&backend, name, "cat /root/file").await, "text\n");
        delete(&backend, name).await;
    }
    delete(&backend, "short").await;
}

pub(crate) async fn a_snapshot_keeps_links_attributes_and_deletions(stage: Stage) {
    let backend = stage.open().await;
    create(&backend, spec("source")).await.unwrap();
    let make = "mkdir /root/d && echo x > /root/d/a && ln /root/d/a /root/d/b && \
                ln -s a /root/d/c && chmod 4711 /root/d/a && chown 12:34 /root/d && \
                mkfifo /root/d/p && rm -r /var/* ; mkdir /var/new; \
                truncate -s 1G /root/d/sparse";
    run(&backend, "source", make).await;
    let snapshot = "linked".parse().unwrap();
    backend.snapshot(&id("source"), &snapshot).await.unwrap();
    let mut copy = spec("copy");
    copy.source = Source::Snapshot(snapshot);
    create(&backend, copy).await.unwrap();
    let look = "stat -c '%n %a %h %F' /root/d/a /root/d/c /root/d/p; stat -c '%u:%g' /root/d; \
                stat -c '%s %b' /root/d/sparse; test /root/d/a -ef /root/d/b && echo same; \
                ls /var";
    let inside = run(&backend, "source", look).await;
    assert!(
        inside.contains("4711") && inside.contains("same"),
        "{inside}"
    );
    assert_eq!(run(&backend, "copy", look).await, inside);
    delete(&backend, "source").await;
    delete(&backend, "copy").await;
}
