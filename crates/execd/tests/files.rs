//! The files API of a real daemon, over its unix socket.

#![expect(
    clippy::unwrap_used,
    reason = "a failed unwrap in a test is the test's failure"
)]

mod daemon;

use std::{
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt},
    },
    path::Path,
};

use bytes::Bytes;
use daemon::{Answer, Daemon};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use serde_json::json;

/// The name of a form's part, and its content.
type Part<'a> = (&'a str, &'a [u8]);

/// A path as a query value.
fn encoded(path: &Path) -> String {
    path.as_os_str()
        .as_encoded_bytes()
        .iter()
        .map(|byte| format!("%{byte:02X}"))
        .collect()
}

fn form(parts: &[Part<'_>]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, content) in parts {
        let head = format!(
            "--XX\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{name}\"\r\n\r\n"
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--XX--\r\n");
    body
}

async fn upload_at(daemon: &Daemon, prefix: &str, parts: &[Part<'_>]) -> Answer {
    let request = Request::post(format!("{prefix}/files/upload"))
        .header(header::CONTENT_TYPE, "multipart/form-data; boundary=XX")
        .body(Full::new(Bytes::from(form(parts))))
        .unwrap();
    daemon.send(request).await
}

async fn upload(daemon: &Daemon, parts: &[Part<'_>]) -> Answer {
    upload_at(daemon, "", parts).await
}

fn metadata(path: &Path) -> Vec<u8> {
    json!({ "path": path, "owner": null, "group": null, "mode": 640 })
        .to_string()
        .into_bytes()
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
async fn uploads_are_paired_by_order_whatever_the_order_of_the_kinds() {
    let daemon = Daemon::start();
    let (a, b) = (daemon.path("d/a"), daemon.path("d/b"));
    let (ma, mb) = (metadata(&a), metadata(&b));
    let big = vec![7u8; 3 << 20];
    for parts in [
        [
            ("metadata", ma.as_slice()),
            ("file", b"A"),
            ("metadata", &mb),
            ("file", &big),
        ],
        [
            ("metadata", ma.as_slice()),
            ("metadata", &mb),
            ("file", b"A"),
            ("file", &big),
        ],
        [
            ("file", b"A".as_slice()),
            ("file", &big),
            ("metadata", &ma),
            ("metadata", &mb),
        ],
        [
            ("file", b"A".as_slice()),
            ("metadata", &ma),
            ("file", &big),
            ("metadata", &mb),
        ],
    ] {
        let _ = fs::remove_dir_all(daemon.path("d"));
        let answer = upload(&daemon, &parts).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        assert_eq!(fs::read(&a).unwrap(), b"A");
        assert_eq!(fs::read(&b).unwrap(), big);
        assert_eq!(mode(&a), 0o640);
        assert_eq!(names(&daemon.path("d")), ["a", "b"]);
    }
}

#[tokio::test]
async fn a_bad_form_is_named_and_changes_nothing() {
    let daemon = Daemon::start();
    let path = daemon.path("d/a");
    fs::create_dir(daemon.path("d")).unwrap();
    let good = metadata(&path);
    let cases: [(&[Part<'_>], &str); 9] = [
        (&[], "INVALID_FILE"),
        (&[("other", b"x")], "INVALID_FILE"),
        (&[("file", b"x")], "INVALID_FILE_METADATA"),
        (&[("metadata", &good)], "INVALID_FILE_CONTENT"),
        (
            &[("metadata", &good), ("file", b"x"), ("file", b"y")],
            "INVALID_FILE",
        ),
        (
            &[("metadata", b"{not json"), ("file", b"x")],
            "INVALID_FILE_METADATA",
        ),
        (
            &[("metadata", b"{\"path\":\"\"}"), ("file", b"x")],
            "INVALID_FILE_METADATA",
        ),
        (
            &[("metadata", b"{\"path\":\"/a\\u0000b\"}"), ("file", b"x")],
            "INVALID_FILE_METADATA",
        ),
        (
            &[
                ("metadata", b"{\"path\":\"/a\",\"mode\":999}"),
                ("file", b"x"),
            ],
            "INVALID_FILE_METADATA",
        ),
    ];
    for (parts, code) in cases {
        let answer = upload(&daemon, parts).await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (StatusCode::BAD_REQUEST, code),
            "{parts:?}"
        );
        assert!(names(&daemon.path("d")).is_empty(), "{parts:?}");
    }
    let plain = daemon.call(Method::POST, "/files/upload", "no form").await;
    assert_eq!(
        (plain.status, plain.code().as_str()),
        (StatusCode::BAD_REQUEST, "INVALID_FILE")
    );
    // Many files hold few descriptors, and a form that turns out bad at its end leaves none of them.
    let many: Vec<Vec<u8>> = (0..200)
        .map(|n| metadata(&daemon.path(&format!("d/{n}"))))
        .collect();
    let mut parts: Vec<(&str, &[u8])> = many
        .iter()
        .flat_map(|m| [("metadata", m.as_slice()), ("file", b"x".as_slice())])
        .collect();
    parts.push(("metadata", &good));
    assert_eq!(
        upload(&daemon, &parts).await.status,
        StatusCode::BAD_REQUEST
    );
    assert!(names(&daemon.path("d")).is_empty());
    parts.push(("file", b"last"));
    assert_eq!(upload(&daemon, &parts).await.status, StatusCode::OK);
    assert_eq!(names(&daemon.path("d")).len(), 201);
}

#[tokio::test]
async fn limits_are_named() {
    let daemon = Daemon::start();
    let long = format!(r#"{{"path":"{}"}}"#, "a".repeat(70_000));
    let answer = upload(&daemon, &[("metadata", long.as_bytes()), ("file", b"x")]).await;
    assert_eq!(answer.code(), "INVALID_FILE_METADATA");
    assert!(answer.text().contains("METADATA_MAX"));
    let answer = upload(&daemon, &vec![("file", b"x".as_slice()); 65]).await;
    assert_eq!(answer.code(), "LIMIT_REACHED");
    assert!(answer.text().contains("ASIDE_MAX"));
    // It has no size and no end.
    let answer = daemon.get("/files/download?path=/proc/self/pagemap").await;
    assert_eq!(answer.code(), "LIMIT_REACHED");
    assert!(answer.text().contains("UNSIZED_MAX"));
}

#[tokio::test]
async fn an_upload_that_breaks_off_leaves_nothing() {
    let daemon = Daemon::start();
    fs::create_dir(daemon.path("d")).unwrap();
    let whole = form(&[
        ("metadata", &metadata(&daemon.path("d/a"))),
        ("file", &vec![1u8; 4 << 20]),
    ]);
    let part = Bytes::copy_from_slice(&whole[..3 << 20]);
    let broken =
        futures_util::stream::iter([Ok(Frame::data(part)), Err(std::io::Error::other("gone"))]);
    let request = Request::post("/files/upload")
        .header(header::CONTENT_TYPE, "multipart/form-data; boundary=XX")
        .body(BodyExt::boxed(StreamBody::new(broken)))
        .unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(daemon.connect().await))
            .await
            .unwrap();
    let driven = tokio::spawn(connection);
    assert!(sender.send_request(request).await.is_err());
    let _ = driven.await;
    // The daemon works on, and the descriptor of the unnamed file goes with the request.
    assert_eq!(daemon.get("/ping").await.status, StatusCode::OK);
    assert!(names(&daemon.path("d")).is_empty());
}

#[tokio::test]
async fn a_user_acts_with_that_users_rights_and_nobody_else_does() {
    if !rustix::process::geteuid().is_root() {
        assert_ne!(
            std::env::var("CI").as_deref(),
            Ok("true"),
            "this test needs root"
        );
        eprintln!("needs root and was NOT run: sudo cargo test -p execd --test files");
        return;
    }
    let daemon = Daemon::start();
    let open = daemon.path("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let secret = daemon.path("secret");
    fs::write(&secret, "root's").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let user = "/v1/filesystem/1234/2345";

    let mine = open.join("mine");
    assert_eq!(
        upload_at(
            &daemon,
            user,
            &[("metadata", &metadata(&mine)), ("file", b"x")]
        )
        .await
        .status,
        200
    );
    let owner = fs::metadata(&mine).unwrap();
    assert_eq!((owner.uid(), owner.gid()), (1234, 2345));

    let refused =
        |answer: Answer| assert_eq!(answer.status, StatusCode::FORBIDDEN, "{}", answer.text());
    refused(
        daemon
            .get(&format!("{user}/files/download?path={}", encoded(&secret)))
            .await,
    );
    refused(
        upload_at(
            &daemon,
            user,
            &[("metadata", &metadata(&secret)), ("file", b"x")],
        )
        .await,
    );
    refused(
        daemon
            .call(
                Method::DELETE,
                &format!("{user}/files?path={}", encoded(&secret)),
                "",
            )
            .await,
    );
    refused(
        daemon
            .call(
                Method::POST,
                &format!("{user}/files/permissions"),
                json!({ mine.to_str().unwrap(): {"owner": "root"} }).to_string(),
            )
            .await,
    );
    refused(
        daemon
            .get(&format!("{user}/directories/archive?path=/root"))
            .await,
    );
    // In a directory the user may write to, where replacing the file would need no right on it.
    let guarded = open.join("guarded");
    fs::write(&guarded, "root's").unwrap();
    refused(
        upload_at(
            &daemon,
            user,
            &[("metadata", &metadata(&guarded)), ("file", b"x")],
        )
        .await,
    );
    assert_eq!(fs::read_to_string(&guarded).unwrap(), "root's");
    // World-readable, behind a way that only CAP_SYS_PTRACE opens.
    let behind = format!("/proc/{}/root/etc/passwd", std::process::id());
    refused(
        daemon
            .get(&format!("{user}/files/download?path={behind}"))
            .await,
    );
    // Readable for the daemon's own groups, which the user does not have.
    let group = daemon.path("group");
    fs::write(&group, "the group's").unwrap();
    fs::set_permissions(&group, fs::Permissions::from_mode(0o640)).unwrap();
    refused(
        daemon
            .get(&format!("{user}/files/download?path={}", encoded(&group)))
            .await,
    );

    let root = daemon
        .get(&format!("/files/download?path={}", encoded(&secret)))
        .await;
    assert_eq!(root.text(), "root's", "the daemon itself keeps its rights");
    let wrong = daemon.get("/v1/filesystem/x/1/files/info").await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn downloads_by_range_condition_and_line() {
    let daemon = Daemon::start();
    let path = daemon.path("f");
    let content: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    fs::write(&path, &content).unwrap();
    let uri = format!("/files/download?path={}", encoded(&path));
    let with = async |name: &str, value: &str| {
        let request = Request::get(&uri)
            .header(name, value)
            .body(Full::<Bytes>::default())
            .unwrap();
        daemon.send(request).await
    };

    let whole = daemon.get(&uri).await;
    assert_eq!(
        (whole.status, whole.body.as_ref()),
        (StatusCode::OK, content.as_slice())
    );
    assert_eq!(whole.headers[header::CONTENT_LENGTH], "3000000");
    assert_eq!(
        whole.headers[header::CONTENT_DISPOSITION],
        "attachment; filename=\"f\""
    );

    let part = with("range", "bytes=1000000-2999998").await;
    assert_eq!(
        (part.status, part.body.as_ref()),
        (StatusCode::PARTIAL_CONTENT, &content[1_000_000..2_999_999])
    );
    assert_eq!(
        part.headers[header::CONTENT_RANGE],
        "bytes 1000000-2999998/3000000"
    );

    let outside = with("range", "bytes=3000000-").await;
    assert_eq!(
        (outside.status, outside.code().as_str()),
        (StatusCode::RANGE_NOT_SATISFIABLE, "UNKNOWN")
    );
    assert_eq!(outside.headers[header::CONTENT_RANGE], "bytes */3000000");
    assert_eq!(
        with("range", "bytes=x").await.status,
        StatusCode::RANGE_NOT_SATISFIABLE
    );

    let tag = whole.headers[header::ETAG].to_str().unwrap();
    assert_eq!(
        with("if-none-match", tag).await.status,
        StatusCode::NOT_MODIFIED
    );
    let date = whole.headers[header::LAST_MODIFIED].to_str().unwrap();
    assert_eq!(
        with("if-modified-since", date).await.status,
        StatusCode::NOT_MODIFIED
    );
    let head = daemon.call(Method::HEAD, &uri, "").await;
    assert_eq!(
        (
            head.headers[header::CONTENT_LENGTH].to_str().unwrap(),
            head.body.len()
        ),
        ("3000000", 0)
    );

    fs::write(&path, "one\r\ntwo\nthree\n").unwrap();
    assert_eq!(
        daemon.get(&format!("{uri}&offset=2")).await.text(),
        "two\nthree"
    );
    assert_eq!(daemon.get(&format!("{uri}&limit=1")).await.text(), "one");
    for wrong in ["offset=0", "limit=x", "offset=-1"] {
        assert_eq!(
            daemon.get(&format!("{uri}&{wrong}")).await.status,
            StatusCode::BAD_REQUEST,
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn bad_paths_and_kinds_get_clear_answers() {
    let daemon = Daemon::start();
    let at = |path: &str| format!("/files/download?path={path}");
    for (uri, status, code) in [
        (at(""), 400, "MISSING_QUERY"),
        ("/files/download".into(), 400, "MISSING_QUERY"),
        ("/files/search?pattern=*".into(), 400, "MISSING_QUERY"),
        (at("/a%00b"), 400, "INVALID_FILE"),
        (at("/etc"), 400, "INVALID_FILE"),
        (at("/dev/zero"), 400, "INVALID_FILE"),
        (at("/etc/passwd/x"), 400, "INVALID_FILE"),
        (at(&format!("/{}", "a".repeat(300))), 400, "INVALID_FILE"),
        (at("/no/such/../x"), 404, "FILE_NOT_FOUND"),
        ("/files/info?path=/none".into(), 404, "FILE_NOT_FOUND"),
        ("/directories/list?path=/none".into(), 404, "FILE_NOT_FOUND"),
        (
            "/directories/list?path=/etc/passwd".into(),
            400,
            "INVALID_FILE",
        ),
        (
            "/directories/list?path=/etc&depth=-1".into(),
            400,
            "INVALID_REQUEST_BODY",
        ),
        (
            "/files/search?path=/etc&pattern=%5Ba".into(),
            400,
            "INVALID_REQUEST_BODY",
        ),
    ] {
        let answer = daemon.get(&uri).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (status, code),
            "{uri}: {}",
            answer.text()
        );
    }
    let pipe = daemon.path("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    assert_eq!(
        daemon.get(&at(&encoded(&pipe))).await.status,
        StatusCode::BAD_REQUEST,
        "and it does not wait"
    );
    for (route, body) in [
        ("/files/mv", "{"),
        ("/files/replace", "[]"),
        ("/files/permissions", "3"),
        ("/directories", "x"),
    ] {
        let answer = daemon.call(Method::POST, route, body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (400, "INVALID_REQUEST_BODY"),
            "{route}"
        );
    }
    assert_eq!(daemon.get("/files/info").await.text(), "{}");
}

#[tokio::test]
async fn names_that_are_not_text_can_be_listed_and_read() {
    let daemon = Daemon::start();
    let odd = daemon
        .directory
        .path()
        .join(std::ffi::OsStr::from_bytes(b"d/\xff $x"));
    fs::create_dir(daemon.path("d")).unwrap();
    fs::write(&odd, "odd").unwrap();
    let listed = daemon
        .get(&format!(
            "/directories/list?path={}",
            encoded(&daemon.path("d"))
        ))
        .await
        .json();
    let raw = listed[0]["raw_path"].as_str().unwrap().to_string();
    assert_eq!(
        daemon
            .get(&format!("/files/download?path={raw}"))
            .await
            .text(),
        "odd"
    );
}

#[tokio::test]
async fn a_large_directory_is_listed_whole_and_in_order() {
    let daemon = Daemon::start();
    let large = daemon.path("large");
    fs::create_dir(&large).unwrap();
    for n in 0..20_000 {
        fs::write(large.join(format!("{n:05}")), "").unwrap();
    }
    let listed = daemon
        .get(&format!("/directories/list?path={}", encoded(&large)))
        .await
        .json();
    let listed: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["path"].as_str().unwrap())
        .collect();
    assert_eq!(listed.len(), 20_000);
    assert!(listed.is_sorted());
}

#[tokio::test]
async fn replacing_in_several_files_is_all_or_nothing() {
    let daemon = Daemon::start();
    fs::write(daemon.path("a"), "x").unwrap();
    let (a, none) = (daemon.path("a"), daemon.path("none"));
    let change = |old: &str| json!({ a.to_str().unwrap(): {"old": old, "new": "y"}, none.to_str().unwrap(): {"old": "x", "new": "y"} });
    let answer = daemon
        .call(Method::POST, "/files/replace", change("x").to_string())
        .await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(fs::read_to_string(&a).unwrap(), "x");
    fs::write(&none, "xx").unwrap();
    let answer = daemon
        .call(
            Method::POST,
            "/files/replace?verbose=true",
            change("z").to_string(),
        )
        .await;
    assert_eq!(answer.json()[none.to_str().unwrap()]["replacedCount"], 2);
    assert_eq!(answer.json()[a.to_str().unwrap()]["replacedCount"], 0);
    let quiet = daemon
        .call(Method::POST, "/files/replace", change("x").to_string())
        .await;
    assert_eq!((quiet.status, quiet.body.len()), (StatusCode::OK, 0));
}

#[tokio::test]
async fn metrics_answer_at_once_and_the_watch_goes_on() {
    let daemon = Daemon::start();
    let metrics = daemon.get("/metrics").await.json();
    assert!(metrics["mem_used_mib"].as_f64().unwrap() > 0.0);
    let watch = daemon
        .begin(
            Request::get("/metrics/watch")
                .body(Full::<Bytes>::default())
                .unwrap(),
        )
        .await;
    assert_eq!(watch.headers()[header::CONTENT_TYPE], "text/event-stream");
    let mut body = watch.into_body();
    let mut seen = String::new();
    while seen.matches("\n\n").count() < 2 {
        let frame = body.frame().await.unwrap().unwrap();
        seen.push_str(&String::from_utf8_lossy(frame.data_ref().unwrap()));
    }
    let times: Vec<i64> = seen
        .split_terminator("\n\n")
        .map(|event| {
            serde_json::from_str::<serde_json::Value>(event).unwrap()["timestamp"]
                .as_i64()
                .unwrap()
        })
        .collect();
    assert!(times[1] - times[0] >= 900, "an event a second: {times:?}");
}
