//! The connection to the X server: made when it is first needed and again when it was lost.
//!
//! One connection serves requests; what waits for events (stillness, the clipboard) opens its own, so
//! that no two readers share a queue. A connection to a local socket costs under a millisecond. All of
//! this blocks, so it runs on threads of its own, bounded in number and in time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::Semaphore;
use x11rb::connection::Connection as _;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{Atom, ConnectionExt as _, Window};
use x11rb::rust_connection::RustConnection;

use crate::capture::Segment;
use crate::error::{Error, Result, no_display};
use crate::limits::{X_ANSWER_MAX, X_REQUESTS_MAX};

x11rb::atom_manager! {
    /// Names that the protocol gives numbers to.
    pub(crate) Atoms: AtomsCookie {
        CLIPBOARD,
        INCR,
        TARGETS,
        TEXT,
        UTF8_STRING,
        TEXT_PLAIN: b"text/plain",
        TEXT_PLAIN_UTF8: b"text/plain;charset=utf-8",
        OSB_CLIPBOARD,
        WM_PROTOCOLS,
        _NET_ACTIVE_WINDOW,
        _NET_CLIENT_LIST,
        _NET_CLOSE_WINDOW,
        _NET_FRAME_EXTENTS,
        _NET_MOVERESIZE_WINDOW,
        _NET_WM_NAME,
        _NET_WM_PID,
        _NET_WM_PING,
        _NET_WM_STATE,
        _NET_WM_STATE_MAXIMIZED_HORZ,
        _NET_WM_STATE_MAXIMIZED_VERT,
    }
}

/// One connection with what is asked once.
pub(crate) struct Session {
    pub(crate) connection: RustConnection,
    pub(crate) root: Window,
    pub(crate) depth: u8,
    pub(crate) atoms: Atoms,
    /// Memory that the server draws screenshots into.
    pub(crate) segment: Mutex<Option<Segment>>,
}

impl Session {
    fn open(display: &str) -> Result<Self> {
        let (connection, screen) =
            x11rb::connect(Some(display)).map_err(|error| no_display(display, &error))?;
        let screen = &connection.setup().roots[screen];
        let (root, depth) = (screen.root, screen.root_depth);
        let atoms = Atoms::new(&connection)?.reply()?;
        Ok(Self {
            connection,
            root,
            depth,
            atoms,
            segment: Mutex::new(None),
        })
    }

    /// The size of the screen as it is now.
    pub(crate) fn size(&self) -> Result<(u16, u16)> {
        let geometry = self.connection.get_geometry(self.root)?.reply()?;
        Ok((geometry.width, geometry.height))
    }

    /// The words of a property, `None` when the window has no such property.
    pub(crate) fn words(
        &self,
        window: Window,
        property: Atom,
        max: u32,
    ) -> Result<Option<Vec<u32>>> {
        let reply = self
            .connection
            .get_property(false, window, property, 0_u32, 0, max)?
            .reply()?;
        Ok(reply.value32().map(Iterator::collect))
    }

    /// The next event, or `None` at the deadline.
    pub(crate) fn event(&self, deadline: Instant) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.connection.poll_for_event()? {
                return Ok(Some(event));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let wait = Timespec::try_from(left)
                .map_err(|e| Error::Failed(format!("no such wait: {e}")))?;
            let stream = self.connection.stream();
            match poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Error::DisplayLost(error.to_string())),
            }
        }
    }

    /// Sends everything and waits until the server has done it.
    pub(crate) fn sync(&self) -> Result<()> {
        self.connection.get_input_focus()?.reply()?;
        Ok(())
    }
}

/// The way to the X server.
pub(crate) struct Display {
    name: String,
    session: Mutex<Option<Arc<Session>>>,
    requests: Arc<Semaphore>,
}

impl Display {
    pub(crate) fn new(name: String) -> Self {
        Self {
            name,
            session: Mutex::new(None),
            requests: Arc::new(Semaphore::new(X_REQUESTS_MAX)),
        }
    }

    /// A connection of one's own.
    pub(crate) fn open(&self) -> Result<Session> {
        Session::open(&self.name)
    }

    /// The shared connection, seen to be alive.
    fn session(&self) -> Result<Arc<Session>> {
        let mut slot = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = slot.as_ref().filter(|session| session.size().is_ok()) {
            return Ok(Arc::clone(session));
        }
        *slot = None;
        let session = Arc::new(self.open()?);
        *slot = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Runs something that talks to the X server, on a thread and not for longer than a server that
    /// is alive needs.
    pub(crate) async fn run<T, F>(self: &Arc<Self>, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Session) -> Result<T> + Send + 'static,
    {
        let display = Arc::clone(self);
        self.run_apart(X_ANSWER_MAX, move |_| {
            let session = display.session()?;
            let done = work(&session);
            if done.as_ref().is_err_and(Error::is_connection_lost) {
                *display
                    .session
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner) = None;
            }
            done
        })
        .await
    }

    /// Runs something that opens connections of its own, within a time of its own.
    pub(crate) async fn run_apart<T, F>(self: &Arc<Self>, within: Duration, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Self) -> Result<T> + Send + 'static,
    {
        let permit = Arc::clone(&self.requests).try_acquire_owned().map_err(|_| {
            Error::Limit(format!(
                "{X_REQUESTS_MAX} requests are talking to the X server already; ask again when one has ended"
            ))
        })?;
        let display = Arc::clone(self);
        let task = tokio::task::spawn_blocking(move || {
            // Held by the thread, not by whoever waits for it: a server that hangs holds the thread.
            let _permit = permit;
            work(&display)
        });
        match tokio::time::timeout(within, task).await {
            Ok(Ok(done)) => done,
            Ok(Err(panic)) => Err(Error::Failed(format!("this request ended badly: {panic}"))),
            Err(_) => Err(Error::DisplaySilent(within.as_secs())),
        }
    }
}
