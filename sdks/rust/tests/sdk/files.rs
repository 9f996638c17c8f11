//! Files and directories.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use opensandbox::wire::exec::file::{FileKind, Permission, Rename, Replace};
use opensandbox::wire::file_mode::FileMode;
use opensandbox::{Contents, WriteFile};
use tokio::io::AsyncReadExt as _;

use crate::sandbox;
use crate::server::Server;

/// Larger than every buffer on the way.
const LARGE: usize = 5 * 1024 * 1024 + 7;

pub(crate) async fn written_and_read_back(server: Arc<Server>) {
    let sandbox = sandbox(&server.client()).await;
    let files = sandbox.files();
    files
        .write("/tmp/a/b c&d", "one\ntwo\nthree\n")
        .await
        .unwrap();
    let path = "/tmp/a/b c&d";
    assert_eq!(files.read_text(path).await.unwrap(), "one\ntwo\nthree\n");
    assert_eq!(files.read_range(path, 4..7).await.unwrap(), b"two");
    assert_eq!(files.read_range(path, 4..4).await.unwrap(), b"");
    let end = files.read_range_header(path, "bytes=-6").await.unwrap();
    assert_eq!(end.bytes().await.unwrap(), b"three\n");
    assert_eq!(files.read_lines(path, 2, 1).await.unwrap().trim(), "two");

    let large: Vec<u8> = (0..LARGE).map(|at| (at * 31 % 251) as u8).collect();
    files.write("/tmp/large", large.clone()).await.unwrap();
    let stream = files.download("/tmp/large").await.unwrap();
    assert_eq!(stream.length(), Some(LARGE as u64));
    let mut read = Vec::new();
    stream.into_reader().read_to_end(&mut read).await.unwrap();
    assert!(read == large, "what was read is not what was written");

    let pieces = large
        .chunks(100_000)
        .map(|piece| Ok(Bytes::copy_from_slice(piece)));
    let pieces: Vec<_> = pieces.collect();
    let unknown = Contents::from_stream(futures_util::stream::iter(pieces), None);
    assert_eq!(unknown.length(), None);
    let reader = std::io::Cursor::new(large.clone());
    let known = Contents::from_reader(reader, Some(LARGE as u64));
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("f"), b"from a file").unwrap();
    let from_file = Contents::from_file(place.path().join("f")).await.unwrap();
    let all = vec![
        WriteFile::new("/tmp/unknown", unknown).mode(0o600),
        WriteFile::new("/tmp/known", known)
            .owner("65534")
            .group("65534"),
        WriteFile::new("/tmp/file", from_file),
        WriteFile::new("/tmp/empty", b"".as_slice()),
    ];
    files.write_all(all).await.unwrap();
    files.write_all(Vec::new()).await.unwrap();
    for path in ["/tmp/unknown", "/tmp/known"] {
        assert!(files.read(path).await.unwrap() == large, "{path}");
    }
    assert_eq!(files.read("/tmp/file").await.unwrap(), b"from a file");
    assert_eq!(files.read("/tmp/empty").await.unwrap(), b"");
    let info = files.info(&["/tmp/unknown", "/tmp/known"]).await.unwrap();
    assert_eq!(info["/tmp/unknown"].mode.bits(), 0o600);
    assert_ne!(info["/tmp/known"].owner, info["/tmp/unknown"].owner);

    let failing = futures_util::stream::iter([Err(std::io::Error::other("torn"))]);
    let torn = files
        .write("/tmp/torn", Contents::from_stream(failing, None))
        .await;
    assert!(torn.is_err());
    assert!(
        !files.exists("/tmp/torn").await.unwrap(),
        "whole or not at all"
    );
    let binary = files.write("/tmp/binary", vec![0xFF]).await;
    binary.unwrap();
    assert!(files.read_text("/tmp/binary").await.is_err());
    let missing = files.read("/no/such").await.unwrap_err();
    assert!(
        missing.is_not_found() && missing.code() == Some("FILE_NOT_FOUND"),
        "{missing}"
    );
    sandbox.kill().await.unwrap();
}

pub(crate) async fn found_moved_and_removed(server: Arc<Server>) {
    let sandbox = sandbox(&server.client()).await;
    let files = sandbox.files();
    files.create_directories(&["/tmp/d/e"]).await.unwrap();
    let mode = Permission {
        mode: Some(FileMode::from_bits(0o700)),
        ..Permission::default()
    };
    files
        .create_directories_with(&[("/tmp/d/f".to_owned(), mode.clone())].into())
        .await
        .unwrap();
    files.write("/tmp/d/x.txt", "alpha alpha").await.unwrap();
    let listed = files.list("/tmp/d", 1).await.unwrap();
    let kinds: Vec<_> = listed
        .iter()
        .map(|file| (file.path.as_str(), file.kind))
        .collect();
    assert!(
        kinds.contains(&("/tmp/d/e", Some(FileKind::Directory))),
        "{kinds:?}"
    );
    assert_eq!(kinds.len(), 3);
    let found = files.search("/tmp/d", "*.txt").await.unwrap();
    assert_eq!(found[0].path, "/tmp/d/x.txt");

    files.rename("/tmp/d/x.txt", "/tmp/d/y.txt").await.unwrap();
    let back = Rename {
        src: "/tmp/d/y.txt".to_owned(),
        dest: "/tmp/d/e/z.txt".to_owned(),
    };
    files.rename_all(&[back]).await.unwrap();
    let path = "/tmp/d/e/z.txt";
    assert_eq!(files.replace(path, "alpha", "beta").await.unwrap(), Some(2));
    let change = Replace {
        old: "none".to_owned(),
        new: String::new(),
    };
    let counts = files.replace_all(&[(path.to_owned(), change)].into()).await;
    assert_eq!(counts.unwrap()[path], 0);
    assert_eq!(files.read_text(path).await.unwrap(), "beta beta");

    files.set_mode(path, 0o604).await.unwrap();
    assert_eq!(files.info(&[path]).await.unwrap()[path].mode.bits(), 0o604);
    files
        .set_permissions(&[(path.to_owned(), mode)].into())
        .await
        .unwrap();
    let other = files.as_user(65534, 65534);
    assert!(
        other.read(path).await.is_err(),
        "another user may not read it"
    );

    files.delete(&[path]).await.unwrap();
    assert!(!files.exists(path).await.unwrap());
    files.delete_directories(&["/tmp/d"]).await.unwrap();
    assert!(!files.exists("/tmp/d").await.unwrap());
    sandbox.kill().await.unwrap();
}

pub(crate) async fn directories_as_archives(server: Arc<Server>) {
    let sandbox = sandbox(&server.client()).await;
    let files = sandbox.files();
    files.write("/tmp/from/a", "a").await.unwrap();
    files.write("/tmp/from/sub/b", "b").await.unwrap();
    let archive = files.download_archive("/tmp/from").await.unwrap();
    let pieces = archive.map(|piece| piece.map_err(std::io::Error::other));
    let unpacked = files
        .upload_archive("/tmp/to", Contents::from_stream(pieces, None))
        .await
        .unwrap();
    assert!(unpacked.entries >= 3 && unpacked.bytes == 2, "{unpacked:?}");
    assert_eq!(files.read("/tmp/to/sub/b").await.unwrap(), b"b");
    sandbox.kill().await.unwrap();
}
