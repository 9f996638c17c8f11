//! What is on the screen: pictures of it, its size, its windows, its stillness, films of it.

use serde_json::json;

use crate::stage::{Application, HEIGHT, Helper, WIDTH, XServer, decode, read};

/// No two pixels near each other are alike.
fn pattern(x: u16, y: u16) -> [u8; 3] {
    [(x * 3) as u8, (y * 5) as u8, ((x ^ y) * 7) as u8]
}

#[tokio::test]
async fn a_picture_is_what_is_shown() {
    let server = XServer::start(None);
    let helper = Helper::start(&server);
    let application = Application::start(&server);
    application.draw((100, 200), (64, 48), pattern);

    let whole = helper.get("/desktop/screenshot").await.ok();
    assert_eq!(whole.header("content-type"), "image/png");
    assert_eq!(whole.header("x-picture-size"), format!("{WIDTH}x{HEIGHT}"));
    let (width, height, pixels) = decode(&whole.body);
    assert_eq!((width, height), (u32::from(WIDTH), u32::from(HEIGHT)));
    let at = |x: usize, y: usize| &pixels[(y * usize::from(WIDTH) + x) * 3..][..3];
    assert_eq!(at(5, 5), [0x20, 0x40, 0x60]);
    for (x, y) in [(0, 0), (63, 47), (10, 40)] {
        assert_eq!(
            at(100 + usize::from(x), 200 + usize::from(y)),
            pattern(x, y),
            "{x},{y}"
        );
    }

    let part = helper
        .get("/desktop/screenshot?region=100,200,64,48")
        .await
        .ok();
    let (width, height, pixels) = decode(&part.body);
    assert_eq!((width, height), (64, 48));
    let expected: Vec<u8> = (0..48)
        .flat_map(|y| (0..64).flat_map(move |x| pattern(x, y)))
        .collect();
    assert_eq!(pixels, expected);

    let small = helper
        .get("/desktop/screenshot?max_edge=320&format=jpeg&quality=90")
        .await
        .ok();
    assert_eq!(small.header("content-type"), "image/jpeg");
    assert_eq!(small.header("x-picture-size"), "320x200");
    assert_eq!(&small.body[..3], [0xff, 0xd8, 0xff]);
}

#[tokio::test]
async fn the_pointer_is_drawn_when_asked() {
    let server = XServer::start(None);
    let helper = Helper::start(&server);
    let _application = Application::start(&server);
    helper
        .act(json!([{"type": "move", "x": 300, "y": 300}]))
        .await
        .ok();
    let without = decode(
        &helper
            .get("/desktop/screenshot?region=280,280,60,60")
            .await
            .ok()
            .body,
    );
    let with = decode(
        &helper
            .get("/desktop/screenshot?region=280,280,60,60&cursor=true")
            .await
            .ok()
            .body,
    );
    assert!(without.2.chunks(3).all(|pixel| pixel == [0x20, 0x40, 0x60]));
    assert_ne!(without.2, with.2);
    let seen = helper.get("/desktop").await.ok().json();
    assert_eq!(seen["cursor"], json!({"x": 300, "y": 300}));
    assert_eq!(
        (seen["width"].as_u64(), seen["height"].as_u64()),
        (Some(1280), Some(800))
    );
}

#[tokio::test]
async fn the_screen_gets_another_size() {
    let server = XServer::start(None);
    let helper = Helper::start(&server);
    for (width, height) in [(1024, 768), (1600, 1000), (801, 603)] {
        let set = helper
            .send(
                "PUT",
                "/desktop/size",
                Some(json!({"width": width, "height": height})),
                &[],
            )
            .await
            .ok();
        assert_eq!(set.json(), json!({"width": width, "height": height}));
        let (seen_width, seen_height, _) =
            decode(&helper.get("/desktop/screenshot").await.ok().body);
        assert_eq!((seen_width, seen_height), (width, height));
    }
    for size in [
        json!({"width": 1, "height": 800}),
        json!({"width": 800, "height": 20_000}),
    ] {
        let refused = helper.send("PUT", "/desktop/size", Some(size), &[]).await;
        assert_eq!(
            refused.error(),
            (400, "DESKTOP::INVALID_PARAMETER".to_owned())
        );
    }
}

#[tokio::test]
async fn windows_are_listed_and_a_thousand_are_too_many() {
    use x11rb::connection::Connection as _;
    use x11rb::protocol::xproto::{ConnectionExt as _, CreateWindowAux, WindowClass};
    let server = XServer::start(None);
    let helper = Helper::start(&server);
    let application = Application::start(&server);
    let listed = helper.get("/desktop/windows").await.ok().json();
    let ours = listed["windows"]
        .as_array()
        .unwrap()
        .iter()
        .find(|window| window["id"] == application.window)
        .unwrap();
    assert_eq!(ours["title"], "A window for tests — ⌘");
    assert_eq!(
        (ours["width"].as_u64(), ours["height"].as_u64()),
        (Some(1280), Some(800))
    );

    let moved = json!({"x": 50, "y": 60, "width": 400, "height": 300});
    let path = format!("/desktop/windows/{}", application.window);
    helper.send("POST", &path, Some(moved), &[]).await.ok();
    let listed = helper.get("/desktop/windows").await.ok().json();
    let ours = listed["windows"]
        .as_array()
        .unwrap()
        .iter()
        .find(|window| window["id"] == application.window)
        .unwrap();
    assert_eq!(
        (ours["x"].as_i64(), ours["width"].as_i64()),
        (Some(50), Some(400))
    );
    let missing = helper
        .send(
            "POST",
            "/desktop/windows/1",
            Some(json!({"focus": true})),
            &[],
        )
        .await;
    assert_eq!(missing.error(), (404, "DESKTOP::NOT_FOUND".to_owned()));

    for _ in 0..1_100 {
        let window = application.connection.generate_id().unwrap();
        let attributes = CreateWindowAux::new().override_redirect(1);
        let root = application.root;
        application
            .connection
            .create_window(
                0,
                window,
                root,
                0,
                0,
                10,
                10,
                0,
                WindowClass::INPUT_OUTPUT,
                0,
                &attributes,
            )
            .unwrap();
    }
    application
        .connection
        .get_input_focus()
        .unwrap()
        .reply()
        .unwrap();
    let listed = helper.get("/desktop/windows").await.ok().json();
    assert_eq!(listed["windows"].as_array().unwrap().len(), 1_000);
    assert!(listed["total"].as_u64().unwrap() >= 1_101);
}

#[tokio::test]
async fn the_wait_ends_when_nothing_is_drawn() {
    let server = XServer::start(None);
    let helper = Helper::start(&server);
    let application = Application::start(&server);
    let still = helper
        .get("/desktop/still?quiet_ms=150&timeout_ms=10000")
        .await
        .ok()
        .json();
    assert_eq!(still["is_still"], true);
    assert!(still["waited_ms"].as_u64().unwrap() >= 150);

    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let drawing = std::thread::spawn(move || {
        for frame in 0_u16.. {
            application.draw((0, 0), (32, 32), |x, y| pattern(x + frame, y));
            let pace = std::time::Duration::from_millis(5);
            if stopped.recv_timeout(pace) != Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                return;
            }
        }
    });
    let busy = helper
        .get("/desktop/still?quiet_ms=800&timeout_ms=1500")
        .await
        .ok()
        .json();
    assert_eq!(busy["is_still"], false);
    drop(stop);
    drawing.join().unwrap();
    let bad = helper
        .get("/desktop/still?quiet_ms=500&timeout_ms=100")
        .await;
    assert_eq!(bad.error(), (400, "DESKTOP::INVALID_PARAMETER".to_owned()));
}

#[tokio::test]
async fn a_recording_is_a_film_of_what_was_shown() {
    let server = XServer::start(None);
    let helper = Helper::start(&server);
    let application = Application::start(&server);
    let order = json!({"fps": 30, "max_edge": 640});
    let started = helper
        .send("POST", "/desktop/recordings", Some(order), &[])
        .await
        .ok();
    assert_eq!(started.status, 201);
    let id = started.json()["id"].as_str().unwrap().to_owned();
    for frame in 0..4 {
        application.draw((0, 0), (256, 256), |x, y| pattern(x + frame * 20, y));
        // The damage was seen when the film has grown.
        loop {
            let now = helper
                .get(&format!("/desktop/recordings/{id}"))
                .await
                .ok()
                .json();
            assert_eq!(now["state"], "recording");
            if now["frames"].as_u64().unwrap() > u64::from(frame) + 1 {
                break;
            }
        }
    }
    let ended = helper
        .send("DELETE", &format!("/desktop/recordings/{id}"), None, &[])
        .await
        .ok()
        .json();
    assert_eq!(ended["state"], "complete", "{ended}");
    let film = read(ended["path"].as_str().unwrap());
    assert_eq!(film.len() as u64, ended["bytes"].as_u64().unwrap());
    assert_eq!((&film[..4], &film[8..12]), (&b"RIFF"[..], &b"AVI "[..]));
    let pictures = film
        .windows(3)
        .filter(|bytes| *bytes == [0xff, 0xd8, 0xff])
        .count();
    assert!(pictures >= 2, "{pictures} pictures in {ended}");
    let listed = helper.get("/desktop/recordings").await.ok().json();
    assert_eq!(listed["recordings"].as_array().unwrap().len(), 1);
}
