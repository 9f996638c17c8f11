//! Bad input and things that break: every answer says what is wrong, and the helper goes on.

use std::process::Command;

use serde_json::{Value, json};
use x11rb::connection::Connection as _;
use x11rb::protocol::xproto::ConnectionExt as _;

use crate::stage::{Application, Helper, XServer};

#[tokio::test]
async fn bad_input_is_refused_before_anything_is_done() {
    let server = XServer::start(None);
    let helper = Helper::start(&server);
    let invalid = (400, "DESKTOP::INVALID_PARAMETER".to_owned());
    for path in [
        "/desktop/screenshot?region=1,2,3",
        "/desktop/screenshot?region=0,0,5000,5000",
        "/desktop/screenshot?max_edge=0",
        "/desktop/screenshot?format=bmp",
        "/desktop/screenshot?format=jpeg&quality=0",
        "/desktop/screenshot?quality=50",
        "/desktop/screenshot?colour=red",
    ] {
        assert_eq!(helper.get(path).await.error(), invalid, "{path}");
    }
    let before = helper.get("/desktop").await.ok().json()["cursor"].clone();
    for wrong in [
        json!({"type": "jump"}),
        json!({"type": "click", "x": 1}),
        json!({"type": "click", "x": 1280, "y": 0}),
        json!({"type": "click", "count": 0}),
        json!({"type": "click", "button": "sixth"}),
        json!({"type": "drag", "path": [{"x": 1, "y": 1}]}),
        json!({"type": "scroll", "dy": 100_000}),
        json!({"type": "type", "text": "a\u{1}b"}),
        json!({"type": "type", "text": "x".repeat(20_001)}),
        json!({"type": "key", "keys": "hyperspace"}),
        json!({"type": "wait"}),
        json!({"type": "wait", "ms": 10_000_000}),
        json!({"type": "move", "x": 1, "y": 1, "z": 1}),
    ] {
        let refused = helper
            .act(json!([{"type": "move", "x": 7, "y": 7}, wrong]))
            .await;
        assert_eq!(refused.error(), invalid, "{wrong}");
    }
    let many: Vec<Value> = vec![json!({"type": "move", "x": 7, "y": 7}); 201];
    assert_eq!(helper.act(json!(many)).await.error(), invalid);
    let after = helper.get("/desktop").await.ok().json()["cursor"].clone();
    assert_eq!(before, after, "nothing of a list with a mistake was done");
    for (method, path, status) in [
        ("GET", "/nothing", 404),
        ("GET", "/%2e%2e/%2e%2e/etc/passwd", 404),
        ("GET", "/desktop/recordings/none", 404),
        ("DELETE", "/desktop/screenshot", 405),
    ] {
        assert_eq!(
            helper.send(method, path, None, &[]).await.error().0,
            status,
            "{path}"
        );
    }
}

#[tokio::test]
async fn pages_of_other_origins_are_refused() {
    let server = XServer::start(None);
    let helper = Helper::start(&server);
    let forbidden = (403, "DESKTOP::FORBIDDEN".to_owned());
    for headers in [
        &[("origin", "https://evil.example")][..],
        &[
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "no-cors"),
        ],
        &[("host", "evil.example")],
    ] {
        assert_eq!(
            helper
                .send("GET", "/desktop/screenshot", None, headers)
                .await
                .error(),
            forbidden,
            "{headers:?}"
        );
    }
    let ours = [
        ("x-forwarded-host", "osb.example"),
        ("origin", "https://osb.example"),
    ];
    helper
        .send("GET", "/desktop/screenshot", None, &ours)
        .await
        .ok();
}

#[tokio::test]
async fn the_helper_outlives_the_x_server() {
    let server = XServer::start(None);
    let helper = Helper::start(&server);
    helper.get("/desktop/screenshot").await.ok();
    let number = server.kill();
    let unavailable = (503, "DESKTOP::UNAVAILABLE".to_owned());
    for path in [
        "/desktop",
        "/desktop/screenshot",
        "/desktop/windows",
        "/desktop/clipboard",
        "/desktop/still",
    ] {
        assert_eq!(helper.get(path).await.error(), unavailable, "{path}");
    }
    let server = XServer::start(Some(number));
    assert_eq!(server.number, number);
    helper.get("/desktop/screenshot").await.ok();
    helper
        .act(json!([{"type": "move", "x": 5, "y": 6}]))
        .await
        .ok();
    assert_eq!(
        helper.get("/desktop").await.ok().json()["cursor"],
        json!({"x": 5, "y": 6})
    );
}

#[tokio::test]
async fn a_clipboard_owner_that_never_answers_is_given_up() {
    let server = XServer::start(None);
    let helper = Helper::start(&server);
    let application = Application::start(&server);
    let clipboard = application
        .connection
        .intern_atom(false, b"CLIPBOARD")
        .unwrap()
        .reply()
        .unwrap()
        .atom;
    application
        .connection
        .set_selection_owner(application.window, clipboard, x11rb::CURRENT_TIME)
        .unwrap();
    application
        .connection
        .get_input_focus()
        .unwrap()
        .reply()
        .unwrap();
    assert_eq!(
        helper.get("/desktop/clipboard").await.error(),
        (504, "DESKTOP::TIMEOUT".to_owned())
    );
    helper
        .send(
            "PUT",
            "/desktop/clipboard",
            Some(json!({"text": "mine"})),
            &[],
        )
        .await
        .ok();
    assert_eq!(
        helper.get("/desktop/clipboard").await.ok().json(),
        json!({"text": "mine"})
    );
    application.connection.flush().unwrap();
}

#[tokio::test]
async fn a_recording_on_a_full_disk_ends_and_says_so() {
    let server = XServer::start(None);
    // A disk of its own, which goes with the program.
    let helper = Helper::start_with(&server, |command, recordings| {
        let mut wrapped = Command::new("unshare");
        let mount = "mount -t tmpfs -o size=64k tmpfs \"$0\" && exec \"$@\"";
        wrapped
            .args(["--mount", "--propagation", "private", "sh", "-c", mount])
            .arg(recordings)
            .arg(command.get_program());
        wrapped
    });
    let application = Application::start(&server);
    let started = helper
        .send(
            "POST",
            "/desktop/recordings",
            Some(json!({"fps": 30, "quality": 100})),
            &[],
        )
        .await
        .ok();
    let id = started.json()["id"].as_str().unwrap().to_owned();
    let path = format!("/desktop/recordings/{id}");
    let failed = loop {
        application.draw((0, 0), (400, 300), |x, y| {
            let noise = (u32::from(x) * 7919 + u32::from(y) * 104_729).wrapping_mul(2_654_435_761);
            [noise as u8, (noise >> 8) as u8, (noise >> 16) as u8]
        });
        let now = helper.get(&path).await.ok().json();
        if now["state"] != "recording" {
            break now;
        }
    };
    assert_eq!(failed["state"], "failed");
    assert!(
        failed["problem"]
            .as_str()
            .unwrap()
            .contains("No space left"),
        "{failed}"
    );
    helper.get("/desktop/screenshot").await.ok();
}

#[tokio::test]
async fn a_browser_that_is_not_there_is_said_to_be_missing() {
    let server = XServer::start(None);
    let helper = Helper::start(&server);
    assert!(!helper.profile().exists());
    let missing = helper.get("/json/version").await;
    assert_eq!(missing.error(), (503, "DESKTOP::UNAVAILABLE".to_owned()));
    assert_eq!(
        helper.get("/cdp").await.error(),
        (400, "DESKTOP::INVALID_PARAMETER".to_owned())
    );
    assert_eq!(
        helper.get("/desktop").await.ok().json()["browser"]["is_running"],
        false
    );
}
