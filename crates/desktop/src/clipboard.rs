//! Reads and owns the clipboard (ICCCM, section 2).
//!
//! In X the clipboard is not a place: whoever copied last hands the text out on request. So reading asks
//! another program, which may never answer, and writing means staying there to answer.

use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use x11rb::connection::Connection as _;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{
    Atom, AtomEnum, ConnectionExt as _, CreateWindowAux, EventMask, PropMode, Property,
    SELECTION_NOTIFY_EVENT, SelectionNotifyEvent, SelectionRequestEvent, Window, WindowClass,
};
use x11rb::wrapper::ConnectionExt as _;

use crate::display::{Display, Session};
use crate::error::{Error, Result};
use crate::limits::{CLIPBOARD_BYTES_MAX, CLIPBOARD_OWNER_MAX};

/// A window that nobody sees, for properties and events.
fn hidden_window(session: &Session) -> Result<Window> {
    let window = session.connection.generate_id()?;
    let attributes = CreateWindowAux::new().event_mask(EventMask::PROPERTY_CHANGE);
    session
        .connection
        .create_window(
            0,
            window,
            session.root,
            0,
            0,
            1,
            1,
            0,
            WindowClass::INPUT_ONLY,
            0,
            &attributes,
        )?
        .check()?;
    Ok(window)
}

/// The text that the clipboard's owner hands out; nothing when nobody owns it or it is no text.
pub(crate) fn read(display: &Display) -> Result<String> {
    let session = display.open()?;
    let (connection, atoms) = (&session.connection, &session.atoms);
    if connection
        .get_selection_owner(atoms.CLIPBOARD)?
        .reply()?
        .owner
        == x11rb::NONE
    {
        return Ok(String::new());
    }
    let window = hidden_window(&session)?;
    let deadline = Instant::now() + CLIPBOARD_OWNER_MAX;
    let property = atoms.OSB_CLIPBOARD;
    connection.convert_selection(
        window,
        atoms.CLIPBOARD,
        atoms.UTF8_STRING,
        property,
        x11rb::CURRENT_TIME,
    )?;
    connection.flush()?;
    loop {
        match next(&session, deadline)? {
            Event::SelectionNotify(event) if event.property == x11rb::NONE => {
                return Ok(String::new());
            }
            Event::SelectionNotify(_) => break,
            _ => {}
        }
    }
    let (kind, mut bytes) = take(&session, window)?;
    if kind == atoms.INCR {
        // A long text comes in pieces, each after the one before was taken; an empty one is the end.
        bytes.clear();
        loop {
            let Event::PropertyNotify(event) = next(&session, deadline)? else {
                continue;
            };
            if event.atom != property || event.state != Property::NEW_VALUE {
                continue;
            }
            let (_, piece) = take(&session, window)?;
            if piece.is_empty() {
                break;
            }
            bytes.extend(piece);
            if bytes.len() > CLIPBOARD_BYTES_MAX {
                return Err(too_long());
            }
        }
    }
    if bytes.len() > CLIPBOARD_BYTES_MAX {
        return Err(too_long());
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn too_long() -> Error {
    Error::Limit(format!(
        "the clipboard holds more than {CLIPBOARD_BYTES_MAX} bytes of text"
    ))
}

fn next(session: &Session, deadline: Instant) -> Result<Event> {
    session.event(deadline)?.ok_or_else(|| {
        Error::Timeout(format!(
            "the program that owns the clipboard did not answer within {} s; it may hang. Copy something else",
            CLIPBOARD_OWNER_MAX.as_secs()
        ))
    })
}

/// The value of our property, which its deletion tells the owner that we have.
fn take(session: &Session, window: Window) -> Result<(Atom, Vec<u8>)> {
    let words = (CLIPBOARD_BYTES_MAX / 4 + 1) as u32;
    let reply = session
        .connection
        .get_property(
            true,
            window,
            session.atoms.OSB_CLIPBOARD,
            AtomEnum::ANY,
            0,
            words,
        )?
        .reply()?;
    Ok((reply.type_, reply.value))
}

/// Owns the clipboard with this text, until another program copies something.
pub(crate) fn write(display: &Display, text: String) -> Result<()> {
    if text.len() > CLIPBOARD_BYTES_MAX {
        return Err(Error::Invalid(format!(
            "the text has {} bytes; the clipboard takes {CLIPBOARD_BYTES_MAX}",
            text.len()
        )));
    }
    let session = display.open()?;
    let window = hidden_window(&session)?;
    let clipboard = session.atoms.CLIPBOARD;
    session
        .connection
        .set_selection_owner(window, clipboard, x11rb::CURRENT_TIME)?
        .check()?;
    if session
        .connection
        .get_selection_owner(clipboard)?
        .reply()?
        .owner
        != window
    {
        return Err(Error::Unavailable(
            "another program took the clipboard at the same moment; ask again".to_owned(),
        ));
    }
    let (started, has_started) = mpsc::sync_channel(1);
    thread::Builder::new()
        .name("clipboard".to_owned())
        .spawn(move || {
            let _ = started.send(());
            // It ends with the connection, or when another program owns the clipboard.
            let _ = hand_out(&session, window, &text);
        })
        .map_err(|e| Error::Failed(format!("no thread for the clipboard: {e}")))?;
    has_started
        .recv_timeout(CLIPBOARD_OWNER_MAX)
        .map_err(|_| Error::Failed("the clipboard's thread did not start".to_owned()))
}

fn hand_out(session: &Session, window: Window, text: &str) -> Result<()> {
    loop {
        match session.connection.wait_for_event()? {
            Event::SelectionClear(event) if event.owner == window => return Ok(()),
            Event::SelectionRequest(request) => answer(session, &request, text)?,
            _ => {}
        }
    }
}

fn answer(session: &Session, request: &SelectionRequestEvent, text: &str) -> Result<()> {
    let (connection, atoms) = (&session.connection, &session.atoms);
    let as_text = [
        atoms.UTF8_STRING,
        atoms.TEXT,
        atoms.TEXT_PLAIN,
        atoms.TEXT_PLAIN_UTF8,
        AtomEnum::STRING.into(),
    ];
    // Clients from before ICCCM name no property and mean the target.
    let property = if request.property == x11rb::NONE {
        request.target
    } else {
        request.property
    };
    let given = if request.target == atoms.TARGETS {
        let offered = [&[atoms.TARGETS], &as_text[..]].concat();
        let kind = Atom::from(AtomEnum::ATOM);
        connection
            .change_property32(
                PropMode::REPLACE,
                request.requestor,
                property,
                kind,
                &offered,
            )?
            .check()
    } else if as_text.contains(&request.target) {
        let kind = if request.target == atoms.TEXT {
            atoms.UTF8_STRING
        } else {
            request.target
        };
        connection
            .change_property8(
                PropMode::REPLACE,
                request.requestor,
                property,
                kind,
                text.as_bytes(),
            )?
            .check()
    } else {
        return notify(session, request, x11rb::NONE);
    };
    // A window that is gone by now takes nothing; that is its owner's business.
    let property = if given.is_ok() { property } else { x11rb::NONE };
    notify(session, request, property)
}

fn notify(session: &Session, request: &SelectionRequestEvent, property: Atom) -> Result<()> {
    let event = SelectionNotifyEvent {
        response_type: SELECTION_NOTIFY_EVENT,
        sequence: 0,
        time: request.time,
        requestor: request.requestor,
        selection: request.selection,
        target: request.target,
        property,
    };
    session
        .connection
        .send_event(false, request.requestor, EventMask::NO_EVENT, event)?;
    session.connection.flush()?;
    Ok(())
}
