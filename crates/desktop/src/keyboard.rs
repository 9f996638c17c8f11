//! Presses keys and types any text, by XTEST.
//!
//! A character that no key of the keyboard gives is put on a keycode without a meaning. An application
//! asks for the new meaning when it reads the MappingNotify that comes before the key, so a keycode keeps
//! its meaning until the application has read all that was typed with it: only then may it get another.
//! Applications that answer `_NET_WM_PING` say so themselves; others get a bounded time.

use std::collections::VecDeque;
use std::time::Instant;

use x11rb::connection::Connection as _;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{
    self, ChangeWindowAttributesAux, ClientMessageEvent, ConnectionExt as _, EventMask, Window,
};
use x11rb::protocol::xtest::ConnectionExt as _;

use crate::display::{Display, Session};
use crate::error::{Error, Result};
use crate::keys;
use crate::limits::KEYS_READ_MAX;

/// A window that knows the ping is found within so many steps from the one that has the focus.
const PARENTS_MAX: usize = 16;

/// Keycodes that this program gave a meaning, with that meaning, the longest unused first.
pub(crate) type Borrowed = VecDeque<(u8, u32)>;

/// The keys as the server has them now.
struct Keymap {
    first: u8,
    per_code: usize,
    keysyms: Vec<u32>,
}

/// A key to press, with or without Shift.
#[derive(Clone, Copy)]
struct Stroke {
    code: u8,
    is_shifted: bool,
}

impl Keymap {
    fn read(session: &Session) -> Result<Self> {
        let setup = session.connection.setup();
        let (first, last) = (setup.min_keycode, setup.max_keycode);
        let reply = session
            .connection
            .get_keyboard_mapping(first, last - first + 1)?
            .reply()?;
        Ok(Self {
            first,
            per_code: usize::from(reply.keysyms_per_keycode).max(1),
            keysyms: reply.keysyms,
        })
    }

    /// Every keycode with what it gives.
    fn codes(&self) -> impl Iterator<Item = (u8, &[u32])> {
        (self.first..=u8::MAX).zip(self.keysyms.chunks(self.per_code))
    }

    /// The key that gives a keysym, plain rather than shifted.
    fn find(&self, keysym: u32) -> Option<Stroke> {
        let at = |level: usize| {
            self.codes()
                .find(|(_, keysyms)| keysyms.get(level) == Some(&keysym))
                .map(|(code, _)| code)
        };
        at(0)
            .map(|code| Stroke {
                code,
                is_shifted: false,
            })
            .or_else(|| {
                at(1).map(|code| Stroke {
                    code,
                    is_shifted: true,
                })
            })
    }

    /// A keycode without a meaning.
    fn spare(&self) -> Option<u8> {
        self.codes()
            .find(|(_, keysyms)| keysyms.iter().all(|&keysym| keysym == 0))
            .map(|(code, _)| code)
    }

    fn first_keysym(&self, code: u8) -> Option<u32> {
        self.codes()
            .find(|&(other, _)| other == code)?
            .1
            .first()
            .copied()
    }

    /// Gives a keycode one meaning, whatever is held.
    fn bind(&mut self, session: &Session, code: u8, keysym: u32) -> Result<()> {
        let meanings = vec![keysym; self.per_code];
        let per_code = self.per_code as u8;
        session
            .connection
            .change_keyboard_mapping(1, code, per_code, &meanings)?
            .check()?;
        let at = usize::from(code - self.first) * self.per_code;
        self.keysyms[at..at + self.per_code].fill(keysym);
        Ok(())
    }
}

/// One key or button event; the pointer's place for motion.
pub(crate) fn fake(session: &Session, kind: u8, detail: u8, (x, y): (i16, i16)) -> Result<()> {
    session
        .connection
        .xtest_fake_input(kind, detail, 0, session.root, x, y, 0)?;
    Ok(())
}

fn key(session: &Session, code: u8, is_down: bool) -> Result<()> {
    let kind = if is_down {
        xproto::KEY_PRESS_EVENT
    } else {
        xproto::KEY_RELEASE_EVENT
    };
    fake(session, kind, code, (0, 0))
}

/// Types a text as if a person had every character on the keyboard.
pub(crate) fn write(
    display: &Display,
    session: &Session,
    borrowed: &mut Borrowed,
    text: &str,
) -> Result<()> {
    let keysyms: Vec<u32> = text
        .replace("\r\n", "\n")
        .chars()
        .map(keys::of_char)
        .collect::<Result<_>>()?;
    let mut keys = Keys::read(display, session, borrowed)?;
    let shift = keys.map.find(keys::SHIFT).map(|stroke| stroke.code);
    for keysym in keysyms {
        let stroke = keys.stroke(keysym)?;
        let held = shift.filter(|_| stroke.is_shifted);
        if let Some(shift) = held {
            key(session, shift, true)?;
        }
        key(session, stroke.code, true)?;
        key(session, stroke.code, false)?;
        if let Some(shift) = held {
            key(session, shift, false)?;
        }
    }
    session.sync()
}

/// The keyboard, with keycodes that may get a meaning.
struct Keys<'a> {
    display: &'a Display,
    session: &'a Session,
    map: Keymap,
    borrowed: &'a mut Borrowed,
    /// Keycodes of ours that were read since they were last used.
    free: Borrowed,
}

impl<'a> Keys<'a> {
    fn read(
        display: &'a Display,
        session: &'a Session,
        borrowed: &'a mut Borrowed,
    ) -> Result<Self> {
        let map = Keymap::read(session)?;
        // What somebody else has put in our place meanwhile is theirs.
        borrowed.retain(|&(code, keysym)| map.first_keysym(code) == Some(keysym));
        Ok(Self {
            display,
            session,
            map,
            borrowed,
            free: Borrowed::new(),
        })
    }

    /// The key for a keysym, which gets one if there is none.
    fn stroke(&mut self, keysym: u32) -> Result<Stroke> {
        if let Some(stroke) = self.map.find(keysym) {
            if let Some(at) = self.free.iter().position(|&(code, _)| code == stroke.code) {
                self.borrowed.extend(self.free.remove(at));
            }
            return Ok(stroke);
        }
        let code = self.unused_code()?;
        self.map.bind(self.session, code, keysym)?;
        self.borrowed.push_back((code, keysym));
        Ok(Stroke {
            code,
            is_shifted: false,
        })
    }

    fn unused_code(&mut self) -> Result<u8> {
        if let Some(code) = self.map.spare() {
            return Ok(code);
        }
        if self.free.is_empty() {
            self.session.sync()?;
            keys_were_read(self.display)?;
            std::mem::swap(&mut self.free, self.borrowed);
        }
        self.free.pop_front().map(|(code, _)| code).ok_or_else(|| {
            Error::Unsupported(
                "the keyboard has no keycode left for characters that it lacks; use the clipboard for this text".to_owned(),
            )
        })
    }
}

impl Drop for Keys<'_> {
    fn drop(&mut self) {
        self.borrowed.extend(self.free.drain(..));
    }
}

/// Waits until the application with the focus has read its events, or the time for that is over.
fn keys_were_read(display: &Display) -> Result<()> {
    let session = display.open()?;
    let (connection, atoms) = (&session.connection, &session.atoms);
    let deadline = Instant::now() + KEYS_READ_MAX;
    let attributes = ChangeWindowAttributesAux::new().event_mask(EventMask::SUBSTRUCTURE_NOTIFY);
    connection
        .change_window_attributes(session.root, &attributes)?
        .check()?;
    let asked = pingable(&session)?;
    if let Some(window) = asked {
        let data = [atoms._NET_WM_PING, 0, window, 0, 0];
        let ping = ClientMessageEvent::new(32, window, atoms.WM_PROTOCOLS, data);
        connection.send_event(false, window, EventMask::NO_EVENT, ping)?;
        connection.flush()?;
    }
    while let Some(event) = session.event(deadline)? {
        if let Event::ClientMessage(message) = event {
            let data = message.data.as_data32();
            if message.type_ == atoms.WM_PROTOCOLS
                && data[0] == atoms._NET_WM_PING
                && Some(data[2]) == asked
            {
                break;
            }
        }
    }
    Ok(())
}

/// The window with the focus, or the one it is in, that answers pings.
fn pingable(session: &Session) -> Result<Option<Window>> {
    let mut window = session.connection.get_input_focus()?.reply()?.focus;
    for _ in 0..PARENTS_MAX {
        if window <= 1 || window == session.root {
            return Ok(None);
        }
        let protocols = session
            .words(window, session.atoms.WM_PROTOCOLS, 32)?
            .unwrap_or_default();
        if protocols.contains(&session.atoms._NET_WM_PING) {
            return Ok(Some(window));
        }
        window = session.connection.query_tree(window)?.reply()?.parent;
    }
    Ok(None)
}

/// Keys to hold or press together, found on the keyboard or put there.
pub(crate) struct Chord {
    codes: Vec<u8>,
}

impl Chord {
    pub(crate) fn find(
        display: &Display,
        session: &Session,
        borrowed: &mut Borrowed,
        keysyms: &[u32],
    ) -> Result<Self> {
        let mut keys = Keys::read(display, session, borrowed)?;
        let shift = keys.map.find(keys::SHIFT);
        let mut codes = Vec::new();
        for &keysym in keysyms {
            let stroke = keys.stroke(keysym)?;
            codes.extend(shift.filter(|_| stroke.is_shifted).map(|shift| shift.code));
            codes.push(stroke.code);
        }
        Ok(Self { codes })
    }

    pub(crate) fn press(&self, session: &Session) -> Result<()> {
        self.codes
            .iter()
            .try_for_each(|&code| key(session, code, true))?;
        session.sync()
    }

    /// Released in the opposite order, as fingers do.
    pub(crate) fn release(&self, session: &Session) -> Result<()> {
        self.codes
            .iter()
            .rev()
            .try_for_each(|&code| key(session, code, false))?;
        session.sync()
    }
}
