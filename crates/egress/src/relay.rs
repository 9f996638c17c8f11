//! Carries bytes between a sandbox's connection and the gate's own, through a pipe of the kernel: they are
//! moved, not copied into this process (splice(2)).

use std::io;

use rustix::net::Shutdown;
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// What a pipe holds by default (pipe(7)).
const PIPE_BYTES: usize = 64 * 1024;

/// Moves everything that comes from one connection to the other, and its end.
pub(crate) async fn pour(from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    let (drain, fill) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    loop {
        let moved = from.async_io(Interest::READABLE, || {
            Ok(splice(from, None, &fill, None, PIPE_BYTES, flags)?)
        });
        let mut left = moved.await?;
        if left == 0 {
            break;
        }
        while left > 0 {
            let moved = to.async_io(Interest::WRITABLE, || {
                Ok(splice(&drain, None, to, None, left, flags)?)
            });
            left -= moved.await?;
        }
    }
    // The other side may have closed already, which is as good.
    let _ = rustix::net::shutdown(to, Shutdown::Write);
    Ok(())
}

/// Makes the end of a connection one that its other side notices as a refusal (RST).
pub(crate) fn reset(stream: &TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(std::time::Duration::ZERO));
}
