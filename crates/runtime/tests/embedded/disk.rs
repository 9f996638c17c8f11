//! Writable layers of bounded size.

use lifecycle::backend::{Backend, Error, Limits, Source};

use crate::client::run;
use crate::stage::{Stage, create, delete, id, settled, soon, spec};

const DISK_BYTES: u64 = 16 << 20;

fn bounded(name: &str) -> lifecycle::backend::Spec {
    let mut spec = spec(name);
    spec.limits = Limits {
        disk_bytes: Some(DISK_BYTES),
        ..Limits::default()
    };
    spec
}

const FILL: &str = "dd if=/dev/zero of=/root/big bs=1M count=64 2>&1; rm -f /root/big";

pub(crate) async fn a_full_layer_says_so_and_only_there(stage: Stage) {
    let backend = stage.open().await;
    create(&backend, bounded("small")).await.unwrap();
    create(&backend, spec("free")).await.unwrap();
    let output = run(&backend, "small", FILL).await;
    assert!(output.contains("No space left on device"), "{output}");
    // What was removed is free again, and nobody else was short of anything.
    let output = run(&backend, "small", "echo fits > /root/note; cat /root/note").await;
    assert_eq!(output.trim(), "fits");
    let output = run(&backend, "free", FILL).await;
    assert!(!output.contains("No space left"), "{output}");
    drop(backend);
    let backend = stage.open().await;
    let output = run(&backend, "small", FILL).await;
    assert!(output.contains("No space left on device"), "{output}");
    delete(&backend, "small").await;
    delete(&backend, "free").await;
    settled(&backend).await;
    assert_eq!(stage.leftovers(), Vec::<String>::new());
}

pub(crate) async fn a_bounded_layer_can_be_kept_while_it_runs_and_after(stage: Stage) {
    let backend = stage.open().await;
    create(&backend, bounded("source")).await.unwrap();
    run(&backend, "source", "echo one > /root/note").await;
    let snapshot = |name: &str| name.parse().unwrap();
    backend
        .snapshot(&id("source"), &snapshot("alive"))
        .await
        .unwrap();
    run(&backend, "source", "echo two > /root/note").await;
    let mut events = backend.events();
    run(&backend, "source", "kill -KILL $(pgrep -x sleep)").await;
    soon("the sandbox to end", events.recv()).await.unwrap();
    backend
        .snapshot(&id("source"), &snapshot("ended"))
        .await
        .unwrap();
    for (name, text) in [("alive", "one"), ("ended", "two")] {
        let mut next = spec(&format!("from-{name}"));
        next.source = Source::Snapshot(snapshot(name));
        create(&backend, next).await.unwrap();
        let output = run(&backend, &format!("from-{name}"), "cat /root/note").await;
        assert_eq!(output.trim(), text);
        delete(&backend, &format!("from-{name}")).await;
    }
    delete(&backend, "source").await;
    settled(&backend).await;
    assert_eq!(stage.leftovers(), Vec::<String>::new());
}

pub(crate) async fn what_cannot_be_made_is_refused_and_leaves_nothing(stage: Stage) {
    let backend = stage.open().await;
    let mut tiny = spec("tiny");
    tiny.limits.disk_bytes = Some(1024);
    let error = create(&backend, tiny).await.unwrap_err();
    let is_right = matches!(&error, Error::Invalid { field, message }
        if *field == "resourceLimits" && message.contains("MiB"));
    assert!(is_right, "{error:?}");
    // Fails after its filesystem was mounted.
    let mut broken = bounded("broken");
    broken.entrypoint = Some(vec!["/no/such/program".to_owned()]);
    create(&backend, broken).await.unwrap_err();
    settled(&backend).await;
    assert_eq!(stage.leftovers(), Vec::<String>::new());
}
