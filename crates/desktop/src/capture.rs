//! Takes the pixels of the screen.
//!
//! The server draws into memory that both have (MIT-SHM 1.2, a memfd passed over the socket): four
//! megabytes through the socket would take longer than encoding them. A server without that extension
//! sends them the slow way. Mapping the memory would need unsafe code and save a quarter of a
//! millisecond, so it is read instead.

use std::os::fd::OwnedFd;
use std::sync::PoisonError;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use x11rb::connection::Connection as _;
use x11rb::protocol::shm::{self, ConnectionExt as _};
use x11rb::protocol::xfixes::ConnectionExt as _;
use x11rb::protocol::xproto::{ConnectionExt as _, ImageFormat};

use crate::display::Session;
use crate::error::{Error, Result};
use crate::picture::{Cursor, Pixels, Region};

/// Bytes of a pixel at the depths that we read: 24 and 32 bits, blue first.
const PIXEL_BYTES: usize = 4;

/// Memory that the server writes and we read.
pub(crate) struct Segment {
    memory: OwnedFd,
    id: shm::Seg,
    bytes: usize,
}

impl Segment {
    fn new(session: &Session, bytes: usize) -> Result<Self> {
        let made = || -> rustix::io::Result<(OwnedFd, OwnedFd)> {
            let memory = memfd_create("screenshot", MemfdFlags::CLOEXEC)?;
            ftruncate(&memory, bytes as u64)?;
            let theirs = rustix::io::fcntl_dupfd_cloexec(&memory, 0)?;
            Ok((memory, theirs))
        };
        let (memory, theirs) =
            made().map_err(|e| Error::Failed(format!("no memory for a screenshot: {e}")))?;
        let id = session.connection.generate_id()?;
        session
            .connection
            .shm_attach_fd(id, theirs, false)?
            .check()?;
        Ok(Self { memory, id, bytes })
    }
}

/// The pixels of a region of the screen.
pub(crate) fn pixels(session: &Session, region: Region) -> Result<Pixels> {
    if !matches!(session.depth, 24 | 32) {
        return Err(Error::Unsupported(format!(
            "the screen has {} bits a pixel; start the X server with -depth 24",
            session.depth
        )));
    }
    let bytes = usize::from(region.width) * usize::from(region.height) * PIXEL_BYTES;
    let data = match shared(session, region, bytes) {
        Err(Error::Unsupported(_) | Error::DisplayRefused(_)) => sent(session, region)?,
        other => other?,
    };
    if data.len() < bytes {
        return Err(Error::Failed(
            "the X server sent less than a picture".to_owned(),
        ));
    }
    Ok(Pixels {
        width: region.width,
        height: region.height,
        bgrx: data,
    })
}

fn shared(session: &Session, region: Region, bytes: usize) -> Result<Vec<u8>> {
    let mut slot = session
        .segment
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if slot.as_ref().is_none_or(|segment| segment.bytes < bytes) {
        if let Some(old) = slot.take() {
            session.connection.shm_detach(old.id)?;
        }
        *slot = Some(Segment::new(session, bytes)?);
    }
    let Some(segment) = slot.as_ref() else {
        return Err(Error::Failed("no memory for a screenshot".to_owned()));
    };
    let (x, y) = (region.x as i16, region.y as i16);
    let format = u8::from(ImageFormat::Z_PIXMAP);
    session
        .connection
        .shm_get_image(
            session.root,
            x,
            y,
            region.width,
            region.height,
            !0,
            format,
            segment.id,
            0,
        )?
        .reply()?;
    let mut data = vec![0; bytes];
    let mut read = 0;
    while read < bytes {
        let count = rustix::io::pread(&segment.memory, &mut data[read..], read as u64)
            .map_err(|e| Error::Failed(format!("reading a screenshot: {e}")))?;
        if count == 0 {
            break;
        }
        read += count;
    }
    data.truncate(read);
    Ok(data)
}

fn sent(session: &Session, region: Region) -> Result<Vec<u8>> {
    let (x, y) = (region.x as i16, region.y as i16);
    let (width, height) = (region.width, region.height);
    let reply = session
        .connection
        .get_image(ImageFormat::Z_PIXMAP, session.root, x, y, width, height, !0)?
        .reply()?;
    Ok(reply.data)
}

/// The picture of the mouse pointer, and where it stands.
pub(crate) fn cursor(session: &Session) -> Result<Cursor> {
    // The extension wants to be told first which version we speak.
    session.connection.xfixes_query_version(5, 0)?.reply()?;
    let image = session.connection.xfixes_get_cursor_image()?.reply()?;
    Ok(Cursor {
        x: i32::from(image.x) - i32::from(image.xhot),
        y: i32::from(image.y) - i32::from(image.yhot),
        width: image.width,
        height: image.height,
        argb: image.cursor_image,
    })
}
