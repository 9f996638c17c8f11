//! A directory as a tar stream, out of a real daemon and into it.

#![expect(
    clippy::unwrap_used,
    reason = "a failed unwrap in a test is the test's failure"
)]

mod daemon;

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
};

use daemon::Daemon;
use http::{Method, StatusCode, header};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The name of an archive's entry, the target if it is a link (a hard one if there is content), and
/// the content.
type Entry<'a> = (&'a str, Option<&'a str>, &'a [u8]);

/// A path as a query value.
fn encoded(path: &Path) -> String {
    path.as_os_str()
        .as_encoded_bytes()
        .iter()
        .map(|byte| format!("%{byte:02X}"))
        .collect()
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[tokio::test]
async fn a_directory_goes_through_an_archive_and_comes_back() {
    let daemon = Daemon::start();
    let from = daemon.path("from");
    fs::create_dir_all(from.join("sub/closed")).unwrap();
    fs::write(from.join("sub/f"), vec![9u8; 1_000_000]).unwrap();
    fs::set_permissions(from.join("sub/f"), fs::Permissions::from_mode(0o4711)).unwrap();
    fs::hard_link(from.join("sub/f"), from.join("same")).unwrap();
    fs::write(from.join("n".repeat(200)), "long name").unwrap();
    symlink("sub/f", from.join("link")).unwrap();
    symlink("/somewhere/else", from.join("outwards")).unwrap();
    fs::set_permissions(from.join("sub/closed"), fs::Permissions::from_mode(0o555)).unwrap();

    let archive = daemon
        .get(&format!("/directories/archive?path={}", encoded(&from)))
        .await;
    assert_eq!(archive.headers[header::CONTENT_TYPE], "application/x-tar");
    let to = daemon.path("new/to");
    let answer = daemon
        .call(
            Method::PUT,
            &format!("/directories/archive?path={}", encoded(&to)),
            archive.body.clone(),
        )
        .await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert_eq!(answer.json()["bytes"], 1_000_009);

    assert_eq!(names(&to), names(&from));
    assert_eq!(fs::read(to.join("sub/f")).unwrap(), vec![9u8; 1_000_000]);
    assert_eq!(mode(&to.join("sub/f")), 0o4711);
    assert_eq!(mode(&to.join("sub/closed")), 0o555);
    assert_eq!(
        fs::metadata(to.join("same")).unwrap().ino(),
        fs::metadata(to.join("sub/f")).unwrap().ino()
    );
    assert_eq!(
        fs::read_link(to.join("outwards")).unwrap(),
        Path::new("/somewhere/else")
    );
    let times = |root: &Path| fs::metadata(root.join("sub/f")).unwrap().mtime();
    assert_eq!(times(&to), times(&from));
    // Once more over what is there.
    let again = daemon
        .call(
            Method::PUT,
            &format!("/directories/archive?path={}", encoded(&to)),
            archive.body,
        )
        .await;
    assert_eq!(again.status, StatusCode::OK, "{}", again.text());
    for (uri, status) in [
        ("/directories/archive?path=/none", 404),
        ("/directories/archive?path=/etc/passwd", 400),
    ] {
        assert_eq!(daemon.get(uri).await.status.as_u16(), status, "{uri}");
    }
}

#[tokio::test]
async fn no_entry_of_an_archive_lands_outside() {
    let daemon = Daemon::start();
    let (root, outside) = (daemon.path("root"), daemon.path("outside"));
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "kept").unwrap();
    let put = async |entries: &[Entry<'_>]| {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, link, content) in entries {
            let mut head = tar::Header::new_gnu();
            head.set_mode(0o644);
            head.set_uid(0);
            head.set_gid(0);
            head.set_mtime(0);
            head.set_size(content.len() as u64);
            // Written raw: the library itself refuses such names.
            head.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            if let Some(target) = link {
                head.set_entry_type(if content.is_empty() {
                    tar::EntryType::Symlink
                } else {
                    tar::EntryType::Link
                });
                head.set_size(0);
                head.as_gnu_mut().unwrap().linkname[..target.len()]
                    .copy_from_slice(target.as_bytes());
            }
            head.set_cksum();
            builder
                .append(&head, if link.is_some() { &[] } else { *content })
                .unwrap();
        }
        let uri = format!("/directories/archive?path={}", encoded(&root));
        daemon
            .call(Method::PUT, &uri, builder.into_inner().unwrap())
            .await
    };
    let out = outside.to_str().unwrap();
    let hostile: [&[Entry<'_>]; 6] = [
        &[("../outside/kept", None, b"bad")],
        &[("a/../../outside/kept", None, b"bad")],
        &[("link", Some(out), b""), ("link/kept", None, b"bad")],
        &[
            ("up", Some("../outside"), b""),
            ("up/new/deep", None, b"bad"),
        ],
        &[("hard", Some("../outside/kept"), b"hard")],
        &[("ln", Some(out), b""), ("hard", Some("ln/kept"), b"hard")],
    ];
    for entries in hostile {
        let _ = fs::remove_dir_all(&root);
        let answer = put(entries).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (400, "INVALID_FILE_CONTENT"),
            "{entries:?}"
        );
        assert!(
            answer.text().contains("leave"),
            "refused for the right reason: {}",
            answer.text()
        );
        assert_eq!(names(&outside), ["kept"], "{entries:?}");
        assert_eq!(
            fs::read_to_string(outside.join("kept")).unwrap(),
            "kept",
            "{entries:?}"
        );
    }
    // An absolute name is taken as relative; a link inside is followed, a link of the same name
    // replaced and not written through.
    let _ = fs::remove_dir_all(&root);
    let good = put(&[
        ("/abs", None, b"1"),
        ("d/f", None, b"2"),
        ("to-d", Some("d"), b""),
        ("to-d/g", None, b"3"),
    ])
    .await;
    assert_eq!(good.status, StatusCode::OK, "{}", good.text());
    assert_eq!(fs::read_to_string(root.join("abs")).unwrap(), "1");
    assert_eq!(fs::read_to_string(root.join("d/g")).unwrap(), "3");
    symlink(outside.join("kept"), root.join("name")).unwrap();
    assert_eq!(put(&[("name", None, b"own")]).await.status, StatusCode::OK);
    assert_eq!(fs::read_to_string(outside.join("kept")).unwrap(), "kept");
    let uri = format!("/directories/archive?path={}", encoded(&root));
    let broken = daemon.call(Method::PUT, &uri, vec![1u8; 2000]).await;
    assert_eq!(
        (broken.status.as_u16(), broken.code().as_str()),
        (400, "INVALID_FILE_CONTENT")
    );
}

#[tokio::test]
async fn only_so_many_archives_are_unpacked_at_once() {
    let daemon = Daemon::start();
    let uri = format!("/directories/archive?path={}", encoded(&daemon.path("d")));
    let mut stalled = Vec::new();
    for _ in 0..16 {
        // The head of a request whose body does not come; the answer to "continue" says that the
        // daemon waits for it.
        let mut connection = daemon.connect().await;
        let head = format!(
            "PUT {uri} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9999\r\n\r\n"
        );
        connection.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        connection.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 100");
        stalled.push(connection);
    }
    let refused = daemon.call(Method::PUT, &uri, "").await;
    assert_eq!(refused.code(), "LIMIT_REACHED");
    assert!(
        refused.text().contains("ARCHIVES_MAX"),
        "{}",
        refused.text()
    );
    assert_eq!(
        daemon.get("/files/info?path=/").await.status,
        StatusCode::OK,
        "others go on"
    );
}
