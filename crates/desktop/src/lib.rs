//! The helper of images with a desktop: screenshots, mouse and keyboard, clipboard, windows, recordings,
//! the live view, and the front of the browser's debugging port, over HTTP on loopback.
//!
//! It runs inside a sandbox as an ordinary program of the image, is reached through the sandbox's
//! endpoint, and holds no secret: what it may do, any program in there may do. It starts neither the X
//! server nor the browser, and outlives both.

mod actions;
pub mod args;
mod avi;
mod browser;
mod capture;
mod clipboard;
mod display;
mod error;
mod guard;
mod http;
mod keyboard;
mod keys;
mod limits;
mod page;
mod picture;
mod recording;
mod rfb;
mod size;
mod still;
mod vnc;
mod windows;

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub use args::Options;

/// Listening sockets with the routes behind them, not yet serving.
pub struct Server {
    listeners: Vec<TcpListener>,
    options: Options,
}

impl Server {
    /// Binds all addresses, so that whoever asks next is answered.
    pub async fn bind(options: Options) -> io::Result<Self> {
        let mut listeners = Vec::new();
        for address in &options.listen {
            let listener = TcpListener::bind(address).await;
            listeners.push(
                listener.map_err(|e| {
                    io::Error::new(e.kind(), format!("listening at {address}: {e}"))
                })?,
            );
        }
        Ok(Self { listeners, options })
    }

    /// Where it listens; ports are known now.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// Serves until a listener fails.
    pub async fn serve(self) -> io::Result<()> {
        let router = http::router(self.options);
        let mut serving = JoinSet::new();
        for listener in self.listeners {
            let router = router.clone();
            serving.spawn(async move { axum::serve(listener, router).await });
        }
        match serving.join_next().await {
            Some(Ok(ended)) => ended,
            Some(Err(panic)) => Err(io::Error::other(panic)),
            None => Ok(()),
        }
    }
}
