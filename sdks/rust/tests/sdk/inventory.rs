//! What the server keeps: images, volumes, and the logs of main programs.

use std::pin::pin;
use std::process::Command;
use std::sync::Arc;

use futures_util::StreamExt as _;
use opensandbox::wire::diagnostics::LogEvent;
use opensandbox::wire::inventory::PullImageRequest;
use opensandbox::wire::sandbox::ImageSpec;
use opensandbox::{Client, CreateSandbox};

use crate::server::Server;

/// A root filesystem of one file, as a tar.
fn rootfs() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("greeting"), "from the sdk").unwrap();
    let mut tar = Command::new("tar");
    tar.args(["-cf", "-", "-C"]).arg(directory.path()).arg(".");
    tar.output().unwrap().stdout
}

async fn references(client: &Client) -> Vec<String> {
    let images = client.images().list().await.unwrap().items;
    images.into_iter().flat_map(|it| it.references).collect()
}

pub(crate) async fn images_come_and_go(server: Arc<Server>) {
    let client = server.client();
    let images = client.images();
    let name = "example.org/sdk/greeting:1".to_owned();
    let imported = images.import(rootfs(), Some(&name)).await.unwrap();
    assert_eq!(imported.ids.len(), 1);
    assert!(references(&client).await.contains(&name));
    let archive = images.export(&name).await.unwrap().bytes().await.unwrap();
    let alias = "example.org/sdk/greeting:stable".to_owned();
    let tagged = images.tag(&name, &alias).await.unwrap();
    assert!(tagged.references.contains(&name) && tagged.references.contains(&alias));
    images.remove(&alias).await.unwrap();
    images.remove(&name).await.unwrap();
    assert!(!references(&client).await.contains(&name));
    assert!(images.export(&name).await.unwrap_err().is_not_found());
    images.import(archive, Some(&name)).await.unwrap();
    assert!(references(&client).await.contains(&name));
    images.remove(&name).await.unwrap();
    images.prune().await.unwrap();

    // Nobody listens there, so the registry cannot be asked.
    let uri = "127.0.0.1:1/nothing:1".to_owned();
    let request = PullImageRequest {
        image: ImageSpec { uri, auth: None },
        platform: None,
    };
    let refused = images.pull(&request).await.err().expect("no registry");
    assert!(refused.to_string().contains("127.0.0.1:1"), "{refused}");
}

pub(crate) async fn volumes_come_and_go(server: Arc<Server>) {
    let volumes = server.client().volumes();
    assert_eq!(volumes.create("sdk-kept").await.unwrap().name, "sdk-kept");
    let listed = volumes.list().await.unwrap().items;
    assert!(listed.iter().any(|volume| volume.name == "sdk-kept"));
    volumes.remove("sdk-kept", false).await.unwrap();
    let listed = volumes.list().await.unwrap().items;
    assert!(listed.iter().all(|volume| volume.name != "sdk-kept"));
    assert!(
        volumes
            .remove("sdk-kept", true)
            .await
            .unwrap_err()
            .is_not_found()
    );
}

pub(crate) async fn a_log_is_followed(server: Arc<Server>) {
    let client = server.client();
    let script = "echo first; until [ -e /tmp/go ]; do sleep 0.02; done; echo second";
    let sandbox = CreateSandbox::from_image("host")
        .entrypoint(["sh", "-c", script])
        .client(&client)
        .await
        .unwrap();
    let mut events = pin!(client.follow_logs(sandbox.id(), Some(10)).await.unwrap());
    let mut seen = String::new();
    while !seen.contains("first\n") {
        match events.next().await.expect("more").unwrap() {
            LogEvent::Text { text } => seen.push_str(&text),
            LogEvent::End => panic!("it has not ended: {seen:?}"),
        }
    }
    // The command's own end may be cut off: the daemon ends with the main program.
    let _ = sandbox.commands().run("touch /tmp/go").await;
    while let LogEvent::Text { text } = events.next().await.expect("an end").unwrap() {
        seen.push_str(&text);
    }
    assert_eq!(seen, "first\nsecond\n");
    sandbox.kill().await.unwrap();
}
