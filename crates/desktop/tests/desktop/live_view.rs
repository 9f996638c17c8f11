//! The live view, by a VNC client that speaks RFC 6143 over the WebSocket.

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::stage::{Helper, PATIENCE, XServer};

struct Viewer {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    held: Vec<u8>,
}

impl Viewer {
    async fn open(helper: &Helper, path: &str) -> Self {
        let address = helper.address.replacen("http", "ws", 1);
        let mut request = format!("{address}{path}").into_client_request().unwrap();
        request
            .headers_mut()
            .insert("sec-websocket-protocol", "binary".parse().unwrap());
        let (socket, answer) = connect_async(request).await.unwrap();
        assert_eq!(answer.headers()["sec-websocket-protocol"], "binary");
        let mut viewer = Self {
            socket,
            held: Vec::new(),
        };
        assert_eq!(viewer.read(12).await, b"RFB 003.008\n");
        viewer.say(b"RFB 003.008\n").await;
        let count = viewer.read(1).await[0];
        assert!(
            viewer.read(usize::from(count)).await.contains(&1),
            "no password is asked for"
        );
        viewer.say(&[1]).await;
        assert_eq!(viewer.read(4).await, [0; 4]);
        viewer.say(&[1]).await;
        let start = viewer.read(24).await;
        assert_eq!(&start[..4], [5, 0, 3, 32], "1280x800");
        let name = u32::from_be_bytes(start[20..24].try_into().unwrap());
        viewer.read(name as usize).await;
        viewer
    }

    async fn say(&mut self, bytes: &[u8]) {
        self.socket
            .send(Message::Binary(bytes.to_vec().into()))
            .await
            .unwrap();
    }

    async fn read(&mut self, count: usize) -> Vec<u8> {
        while self.held.len() < count {
            let message = timeout(PATIENCE, self.socket.next())
                .await
                .unwrap()
                .unwrap()
                .unwrap();
            self.held.extend(message.into_data());
        }
        self.held.drain(..count).collect()
    }

    /// Moves the pointer and waits for a picture, which comes after what was said before.
    async fn point(&mut self, x: u16, y: u16) {
        let ([x1, x2], [y1, y2]) = (x.to_be_bytes(), y.to_be_bytes());
        self.say(&[5, 0, x1, x2, y1, y2]).await;
        self.say(&[3, 0, 0, 0, 0, 0, 0, 1, 0, 1]).await;
        assert_eq!(self.read(1).await, [0], "an update of the screen");
    }
}

#[tokio::test]
async fn a_viewer_sees_and_touches_and_one_who_may_only_look_does_not() {
    let server = XServer::start(None);
    let helper = Helper::start(&server);
    let pointer = async || helper.get("/desktop").await.ok().json()["cursor"].clone();
    let mut hands = Viewer::open(&helper, "/desktop/vnc").await;
    hands.point(123, 45).await;
    assert_eq!(pointer().await, serde_json::json!({"x": 123, "y": 45}));
    let mut eyes = Viewer::open(&helper, "/websockify?view_only=true").await;
    eyes.point(600, 600).await;
    assert_eq!(pointer().await, serde_json::json!({"x": 123, "y": 45}));
}

#[tokio::test]
async fn the_page_is_served_and_nothing_else() {
    let server = XServer::start(None);
    let helper = Helper::start(&server);
    for path in ["/", "/vnc.html", "/vnc.html?autoconnect=true"] {
        let page = helper.get(path).await.ok();
        assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    }
    let seen = helper.get("/desktop").await.ok().json();
    assert!(
        seen["live_view"]["page"]
            .as_str()
            .unwrap()
            .starts_with("vnc.html?")
    );
}

#[tokio::test]
async fn a_viewer_that_never_reads_holds_up_nobody() {
    let server = XServer::start(None);
    let helper = Helper::start(&server);
    let mut lazy = Viewer::open(&helper, "/desktop/vnc").await;
    // Asks for whole screens and takes none.
    for _ in 0..200 {
        lazy.say(&[3, 0, 0, 0, 0, 0, 5, 0, 3, 32]).await;
    }
    helper.get("/desktop/screenshot").await.ok();
    let mut other = Viewer::open(&helper, "/desktop/vnc").await;
    other.point(9, 9).await;
    assert_eq!(
        helper.get("/desktop").await.ok().json()["cursor"],
        serde_json::json!({"x": 9, "y": 9})
    );
}
