//! Mouse, keyboard and clipboard, as the application in the window gets them.

use serde_json::json;
use x11rb::protocol::Event;

use crate::stage::{Application, Helper, XServer, decode};

#[tokio::test]
async fn a_click_in_a_small_picture_hits_the_place_on_the_screen() {
    let server = XServer::start(None);
    let helper = Helper::start(&server);
    let mut application = Application::start(&server);
    let picture = helper
        .get("/desktop/screenshot?region=200,100,800,600&max_edge=200")
        .await
        .ok();
    assert_eq!(picture.header("x-picture-size"), "200x150");
    let click = json!({
        "actions": [{"type": "click", "x": 10, "y": 20, "button": "right", "count": 2, "hold": ["ctrl"]}],
        "then": {"max_edge": 640},
    });
    let done = helper
        .send("POST", "/desktop/actions", Some(click), &[])
        .await
        .ok()
        .json();
    assert_eq!(done["cursor"], json!({"x": 242, "y": 182}));
    assert_eq!(
        (
            done["picture"]["width"].as_u64(),
            done["picture"]["height"].as_u64()
        ),
        (Some(640), Some(400))
    );
    for _ in 0..2 {
        let Event::ButtonPress(press) =
            application.until(|event| matches!(event, Event::ButtonPress(_)))
        else {
            panic!()
        };
        assert_eq!((press.root_x, press.root_y, press.detail), (242, 182, 3));
        assert_ne!(u16::from(press.state) & 4, 0, "Control is held");
    }
    // The picture that came with the answer is the last one now; an older one can be named.
    let id: u64 = picture.header("x-picture-id").parse().unwrap();
    let last = json!({"actions": [{"type": "move", "x": 100, "y": 100}]});
    let done = helper
        .send("POST", "/desktop/actions", Some(last), &[])
        .await
        .ok()
        .json();
    assert_eq!(done["cursor"], json!({"x": 201, "y": 201}));
    let older = json!({"actions": [{"type": "move", "x": 0, "y": 0}], "picture": id});
    let done = helper
        .send("POST", "/desktop/actions", Some(older), &[])
        .await
        .ok()
        .json();
    assert_eq!(done["cursor"], json!({"x": 202, "y": 102}));
}

#[tokio::test]
async fn drags_and_wheels_arrive_as_they_were_asked_for() {
    let server = XServer::start(None);
    let helper = Helper::start(&server);
    let mut application = Application::start(&server);
    let path = [(10, 10), (50, 60), (90, 30)].map(|(x, y)| json!({"x": x, "y": y}));
    helper
        .act(json!([
            {"type": "drag", "path": path},
            {"type": "scroll", "x": 400, "y": 400, "dy": -2, "dx": 1},
        ]))
        .await
        .ok();
    let mut seen = Vec::new();
    while seen.len() < 5 {
        match application
            .until(|event| matches!(event, Event::ButtonPress(_) | Event::ButtonRelease(_)))
        {
            Event::ButtonPress(press) => seen.push((press.detail, press.root_x, press.root_y)),
            Event::ButtonRelease(release) if release.detail == 1 => {
                seen.push((0, release.root_x, release.root_y));
            }
            _ => {}
        }
    }
    assert_eq!(
        seen,
        [
            (1, 10, 10),
            (0, 90, 30),
            (4, 400, 400),
            (4, 400, 400),
            (7, 400, 400)
        ]
    );
}

#[tokio::test]
async fn any_text_can_be_typed() {
    let server = XServer::start(None);
    let helper = Helper::start(&server);
    let mut application = Application::start(&server);
    let scripts = "Hello, World!\n\tÄÖÜß éèê Жизнь Ελλάδα עברית العربية हिन्दी ไทย 漢字 かな 한글 😀🎉 ∑≠∞ “‘’”";
    // More characters that no key has than there are keycodes.
    let many: String = ('\u{4e00}'..'\u{4f2c}').collect();
    for text in [scripts, &many, scripts] {
        let asked = helper.act(json!([{"type": "type", "text": text}]));
        let count = text.chars().count();
        let (done, (typed, back)) = tokio::join!(asked, async {
            let reading =
                tokio::task::spawn_blocking(move || (application.typed(count), application));
            reading.await.unwrap()
        });
        done.ok();
        assert_eq!(typed, text);
        application = back;
    }
}

#[tokio::test]
async fn keys_have_names() {
    let server = XServer::start(None);
    let helper = Helper::start(&server);
    let mut application = Application::start(&server);
    helper
        .act(json!([{"type": "key", "keys": "ctrl+shift+a"}, {"type": "key", "keys": ["alt", "F4"], "hold_ms": 20}]))
        .await
        .ok();
    let mut states = Vec::new();
    while states.len() < 5 {
        if let Event::KeyPress(press) =
            application.until(|event| matches!(event, Event::KeyPress(_)))
        {
            states.push(u16::from(press.state) & 0b1101);
        }
    }
    // Control, Shift, a with both; Alt, F4 with it.
    assert_eq!(states, [0, 4, 5, 0, 8]);
    let unknown = helper
        .act(json!([{"type": "key", "keys": "ctrl+nothing"}]))
        .await;
    assert_eq!(
        unknown.error(),
        (400, "DESKTOP::INVALID_PARAMETER".to_owned())
    );
}

#[tokio::test]
async fn the_clipboard_goes_both_ways() {
    let server = XServer::start(None);
    let helper = Helper::start(&server);
    assert_eq!(
        helper.get("/desktop/clipboard").await.ok().json(),
        json!({"text": ""})
    );
    for text in ["copied ✂", "", &"long ".repeat(100_000)] {
        let put = helper
            .send(
                "PUT",
                "/desktop/clipboard",
                Some(json!({"text": text})),
                &[],
            )
            .await
            .ok();
        assert_eq!(put.status, 204);
        assert_eq!(
            helper.get("/desktop/clipboard").await.ok().json(),
            json!({"text": text})
        );
    }
    let long = json!({"text": "x".repeat(1_100_000)});
    let refused = helper
        .send("PUT", "/desktop/clipboard", Some(long), &[])
        .await;
    assert_eq!(
        refused.error(),
        (400, "DESKTOP::INVALID_PARAMETER".to_owned())
    );
}

#[tokio::test]
async fn an_action_answers_with_the_picture_itself_when_pictures_are_accepted() {
    let server = XServer::start(None);
    let helper = Helper::start(&server);
    let _application = Application::start(&server);
    let todo =
        json!({"actions": [{"type": "wait", "still": {"quiet_ms": 50}}], "then": "screenshot"});
    let picture = helper
        .send(
            "POST",
            "/desktop/actions",
            Some(todo),
            &[("accept", "image/png")],
        )
        .await
        .ok();
    assert_eq!(picture.header("content-type"), "image/png");
    assert_eq!(decode(&picture.body).0, 1280);
}
