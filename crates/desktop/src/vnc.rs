//! The live view: a WebSocket whose messages are the bytes of the VNC server's connection.
//!
//! The VNC server does the rest: passwords, encodings, many viewers. A viewer that does not read is
//! held back by its own connection and ended after a while; nobody else notices.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::ws::{Message, WebSocket};
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::error::{Error, Result};
use crate::limits::{VIEWER_SEND_MAX, VIEWERS_MAX, VNC_CONNECT_MAX, VNC_READ_BYTES};
use crate::rfb::ViewOnly;

/// Where the VNC server is, and how many may look.
pub(crate) struct Vnc {
    address: SocketAddr,
    viewers: Arc<Semaphore>,
}

/// A viewer's connection to the VNC server.
pub(crate) struct Viewer {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

impl Vnc {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            viewers: Arc::new(Semaphore::new(VIEWERS_MAX)),
        }
    }

    /// Connects before the WebSocket is agreed to, so that a viewer without a server is told.
    pub(crate) async fn connect(&self) -> Result<Viewer> {
        let place = Arc::clone(&self.viewers).try_acquire_owned().map_err(|_| {
            Error::Limit(format!(
                "{VIEWERS_MAX} viewers are looking already; close one"
            ))
        })?;
        let address = self.address;
        let unavailable = |why: String| {
            Error::Unavailable(format!(
                "the VNC server at {address} does not answer ({why}). Ask again"
            ))
        };
        let stream = timeout(VNC_CONNECT_MAX, TcpStream::connect(address))
            .await
            .map_err(|_| unavailable(format!("after {} s", VNC_CONNECT_MAX.as_secs())))?
            .map_err(|e| unavailable(e.to_string()))?;
        // A click is a few bytes that somebody waits for.
        let _ = stream.set_nodelay(true);
        Ok(Viewer {
            stream,
            _place: place,
        })
    }
}

/// Carries bytes until either side ends.
pub(crate) async fn relay(viewer: Viewer, socket: WebSocket, view_only: bool) {
    let (from_server, to_server) = viewer.stream.into_split();
    let (to_viewer, from_viewer) = socket.split();
    tokio::select! {
        () = inward(from_viewer, to_server, view_only) => {}
        () = outward(from_server, to_viewer) => {}
    }
}

async fn inward(mut from: SplitStream<WebSocket>, mut to: OwnedWriteHalf, view_only: bool) {
    let mut filter = view_only.then(ViewOnly::new);
    while let Some(Ok(message)) = from.next().await {
        let bytes = match message {
            Message::Binary(bytes) => bytes,
            Message::Close(_) => return,
            // Pings are answered by the library; text is no part of this protocol.
            _ => continue,
        };
        let bytes = match &mut filter {
            Some(filter) => match filter.pass(&bytes) {
                Ok(passed) => Bytes::from(passed),
                Err(_) => return,
            },
            None => bytes,
        };
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

async fn outward(mut from: OwnedReadHalf, mut to: SplitSink<WebSocket, Message>) {
    let mut buffer = vec![0; VNC_READ_BYTES];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let message = Message::Binary(Bytes::copy_from_slice(&buffer[..count]));
        match timeout(VIEWER_SEND_MAX, to.send(message)).await {
            Ok(Ok(())) => {}
            _ => return,
        }
    }
    let _ = timeout(VIEWER_SEND_MAX, to.send(Message::Close(None))).await;
}
