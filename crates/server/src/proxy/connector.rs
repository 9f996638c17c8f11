//! Opens connections into sandboxes for the HTTP client, which keeps them by authority: so the
//! authority is the sandbox's id and the port, and one sandbox's connections can never be used
//! for another.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use api::id::SandboxId;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use lifecycle::Service;
use lifecycle::backend::{Stream, Target};

use super::HOLD;
use super::route::CONTROL_PORT;

#[derive(Clone)]
pub(super) struct Connector {
    service: Service,
}

impl Connector {
    pub(super) fn new(service: Service) -> Self {
        Self { service }
    }
}

/// The id and the port as an authority. Authorities are compared without regard to case and ids
/// are not, so a capital letter is written with a dot before it, which no id contains.
pub(super) fn authority(id: &SandboxId, port: u16) -> String {
    let mut text = String::with_capacity(id.as_str().len() + 6);
    for letter in id.as_str().chars() {
        if letter.is_ascii_uppercase() {
            text.push('.');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text + ":" + &port.to_string()
}

fn parse_authority(uri: &Uri) -> Option<(SandboxId, u16)> {
    let host = uri.host()?;
    let mut id = String::with_capacity(host.len());
    let mut letters = host.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '.' => id.push(letters.next()?.to_ascii_uppercase()),
            letter => id.push(letter),
        }
    }
    Some((id.parse().ok()?, uri.port_u16()?))
}

impl tower::Service<Uri> for Connector {
    type Response = Io;
    type Error = lifecycle::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Io, lifecycle::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), lifecycle::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (id, port) = parse_authority(&uri).expect("the proxy made this authority");
        let target = if port == CONTROL_PORT {
            Target::Control
        } else {
            Target::Port(port)
        };
        let service = self.service.clone();
        Box::pin(async move {
            let stream = service.connect(&id, target, HOLD).await?;
            Ok(Io(TokioIo::new(stream)))
        })
    }
}

/// A stream into a sandbox, as the HTTP client wants it.
pub(super) struct Io(TokioIo<Box<dyn Stream>>);

impl Connection for Io {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for Io {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, buffers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_differ_only_in_case_have_different_authorities() {
        for text in ["0199-abcd", "Ab_c", "aB_c", "ab_c"] {
            let id: SandboxId = text.parse().unwrap();
            let uri: Uri = format!("http://{}/", authority(&id, 80)).parse().unwrap();
            assert_eq!(parse_authority(&uri), Some((id, 80)), "{text}");
        }
        let authority = |text: &str| -> http::uri::Authority {
            authority(&text.parse().unwrap(), 80).parse().unwrap()
        };
        assert_ne!(authority("Ab"), authority("aB"));
        assert_ne!(authority("Ab"), authority("ab"));
    }
}
