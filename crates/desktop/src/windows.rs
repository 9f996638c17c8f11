//! The windows that the window manager knows, and what it is asked to do with them (EWMH 1.5).

use serde::{Deserialize, Serialize};
use x11rb::connection::Connection as _;
use x11rb::protocol::xproto::{
    AtomEnum, ClientMessageEvent, ConfigureWindowAux, ConnectionExt as _, EventMask, Window as Id,
};

use crate::display::Session;
use crate::error::{Error, Result};
use crate::limits::{TITLE_WORDS_MAX, WINDOWS_MAX};

/// A message of a program that acts for a person (EWMH, source indication).
const FROM_A_PAGER: u32 = 2;

/// One window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Window {
    pub(crate) id: u32,
    pub(crate) title: String,
    /// The application, as it names itself.
    pub(crate) class: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pid: Option<u32>,
    pub(crate) x: i16,
    pub(crate) y: i16,
    pub(crate) width: u16,
    pub(crate) height: u16,
    pub(crate) is_focused: bool,
}

/// All windows, or the first of very many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Windows {
    pub(crate) windows: Vec<Window>,
    /// How many there are.
    pub(crate) total: usize,
}

/// What to do with a window. All that is given is done, in this order.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    #[serde(default)]
    pub(crate) focus: bool,
    pub(crate) x: Option<i16>,
    pub(crate) y: Option<i16>,
    pub(crate) width: Option<u16>,
    pub(crate) height: Option<u16>,
    #[serde(default)]
    pub(crate) close: bool,
}

/// The windows, the oldest first.
pub(crate) fn list(session: &Session) -> Result<Windows> {
    // Without a window manager nobody keeps the list, and the root's children are what there is.
    let known = session.words(session.root, session.atoms._NET_CLIENT_LIST, u32::MAX)?;
    let ids = match known {
        Some(ids) => ids,
        None => {
            session
                .connection
                .query_tree(session.root)?
                .reply()?
                .children
        }
    };
    let focused = focused_id(session)?;
    let total = ids.len();
    let windows = ids
        .into_iter()
        .take(WINDOWS_MAX)
        .filter_map(|id| describe(session, id, focused).transpose())
        .collect::<Result<Vec<_>>>()?;
    Ok(Windows { windows, total })
}

/// The window that has the keyboard.
pub(crate) fn focused(session: &Session) -> Result<Option<Window>> {
    match focused_id(session)? {
        Some(id) => describe(session, id, Some(id)),
        None => Ok(None),
    }
}

fn focused_id(session: &Session) -> Result<Option<Id>> {
    let active = session.words(session.root, session.atoms._NET_ACTIVE_WINDOW, 1)?;
    Ok(active
        .and_then(|ids| ids.first().copied())
        .filter(|&id| id != x11rb::NONE))
}

/// A window's particulars; `None` when it is gone or was never mapped.
fn describe(session: &Session, id: Id, focused: Option<Id>) -> Result<Option<Window>> {
    let (connection, atoms) = (&session.connection, &session.atoms);
    let geometry = connection.get_geometry(id)?;
    let place = connection.translate_coordinates(id, session.root, 0, 0)?;
    let name = connection.get_property(
        false,
        id,
        atoms._NET_WM_NAME,
        atoms.UTF8_STRING,
        0,
        TITLE_WORDS_MAX,
    )?;
    let old_name = connection.get_property(
        false,
        id,
        AtomEnum::WM_NAME,
        AtomEnum::ANY,
        0,
        TITLE_WORDS_MAX,
    )?;
    let class = connection.get_property(
        false,
        id,
        AtomEnum::WM_CLASS,
        AtomEnum::STRING,
        0,
        TITLE_WORDS_MAX,
    )?;
    let pid = connection.get_property(false, id, atoms._NET_WM_PID, AtomEnum::CARDINAL, 0, 1)?;
    let (geometry, place) = match (gone(geometry.reply())?, gone(place.reply())?) {
        (Some(geometry), Some(place)) => (geometry, place),
        _ => return Ok(None),
    };
    let text =
        |value: Option<Vec<u8>>| String::from_utf8_lossy(&value.unwrap_or_default()).into_owned();
    let title = text(gone(name.reply())?.map(|reply| reply.value));
    let old_title = text(gone(old_name.reply())?.map(|reply| reply.value));
    let class = text(gone(class.reply())?.map(|reply| reply.value));
    let pid = gone(pid.reply())?.and_then(|reply| reply.value32()?.next());
    Ok(Some(Window {
        id,
        title: if title.is_empty() { old_title } else { title },
        // Two strings, each with a zero at its end: the instance and the class.
        class: class
            .trim_end_matches('\0')
            .rsplit('\0')
            .next()
            .unwrap_or_default()
            .to_owned(),
        pid,
        x: place.dst_x,
        y: place.dst_y,
        width: geometry.width,
        height: geometry.height,
        is_focused: focused == Some(id),
    }))
}

/// An answer about a window that may be gone by now.
fn gone<T>(reply: std::result::Result<T, x11rb::errors::ReplyError>) -> Result<Option<T>> {
    match reply.map_err(Error::from) {
        Ok(value) => Ok(Some(value)),
        Err(Error::DisplayRefused(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Asks the window manager to change a window.
pub(crate) fn change(session: &Session, id: Id, change: &Change) -> Result<()> {
    let missing = || {
        Error::NotFound(format!(
            "there is no window {id}; GET /desktop/windows lists them"
        ))
    };
    describe(session, id, None)?.ok_or_else(missing)?;
    if change.width == Some(0) || change.height == Some(0) {
        return Err(Error::Invalid(
            "a window is at least 1 wide and high".to_owned(),
        ));
    }
    if change.focus {
        tell(
            session,
            id,
            session.atoms._NET_ACTIVE_WINDOW,
            [FROM_A_PAGER, 0, 0, 0, 0],
        )?;
        let above = ConfigureWindowAux::new().stack_mode(x11rb::protocol::xproto::StackMode::ABOVE);
        session.connection.configure_window(id, &above)?;
    }
    if change.x.is_some() || change.y.is_some() || change.width.is_some() || change.height.is_some()
    {
        // A maximized window keeps its place, so it is first made one that is not (0: remove).
        let atoms = &session.atoms;
        let maximized = [
            0,
            atoms._NET_WM_STATE_MAXIMIZED_HORZ,
            atoms._NET_WM_STATE_MAXIMIZED_VERT,
            FROM_A_PAGER,
            0,
        ];
        tell(session, id, atoms._NET_WM_STATE, maximized)?;
        let wanted = ConfigureWindowAux::new()
            .x(change.x.map(i32::from))
            .y(change.y.map(i32::from))
            .width(change.width.map(u32::from))
            .height(change.height.map(u32::from));
        session.connection.configure_window(id, &wanted)?;
    }
    if change.close {
        tell(
            session,
            id,
            session.atoms._NET_CLOSE_WINDOW,
            [0, FROM_A_PAGER, 0, 0, 0],
        )?;
    }
    session.sync()
}

fn tell(session: &Session, id: Id, kind: u32, data: [u32; 5]) -> Result<()> {
    let message = ClientMessageEvent::new(32, id, kind, data);
    let mask = EventMask::SUBSTRUCTURE_REDIRECT | EventMask::SUBSTRUCTURE_NOTIFY;
    session
        .connection
        .send_event(false, session.root, mask, message)?;
    session.connection.flush()?;
    Ok(())
}
