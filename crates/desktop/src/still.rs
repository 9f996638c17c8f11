//! Waits until the screen is still: until nothing was drawn for a while (XDamage).

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use x11rb::connection::Connection as _;
use x11rb::protocol::Event;
use x11rb::protocol::damage::{ConnectionExt as _, ReportLevel};
use x11rb::protocol::xfixes::ConnectionExt as _;

use crate::display::{Display, Session};
use crate::error::{Error, Result};
use crate::limits::{QUIET_DEFAULT, STILL_TIMEOUT_DEFAULT, WAIT_MAX};

/// What counts as still, and how long to wait for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Still {
    /// So long nothing may change.
    pub(crate) quiet_ms: Option<u64>,
    /// After so long the wait is over in any case; a video never is still.
    pub(crate) timeout_ms: Option<u64>,
}

/// How the wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Stillness {
    pub(crate) is_still: bool,
    pub(crate) waited_ms: u64,
}

impl Still {
    pub(crate) fn times(&self) -> Result<(Duration, Duration)> {
        let quiet = self.quiet_ms.map_or(QUIET_DEFAULT, Duration::from_millis);
        let timeout = self
            .timeout_ms
            .map_or(STILL_TIMEOUT_DEFAULT, Duration::from_millis);
        if timeout > WAIT_MAX || quiet > timeout {
            return Err(Error::Invalid(format!(
                "still: timeout_ms is at most {} and quiet_ms at most timeout_ms, not {} and {}",
                WAIT_MAX.as_millis(),
                timeout.as_millis(),
                quiet.as_millis()
            )));
        }
        Ok((quiet, timeout))
    }
}

/// Reports what is drawn on the screen to a connection.
pub(crate) fn watch(session: &Session) -> Result<u32> {
    session.connection.xfixes_query_version(5, 0)?.reply()?;
    session.connection.damage_query_version(1, 1)?.reply()?;
    let damage = session.connection.generate_id()?;
    session
        .connection
        .damage_create(damage, session.root, ReportLevel::NON_EMPTY)?
        .check()?;
    Ok(damage)
}

/// Makes the next drawing be reported again.
pub(crate) fn again(session: &Session, damage: u32) -> Result<()> {
    session
        .connection
        .damage_subtract(damage, x11rb::NONE, x11rb::NONE)?;
    session.connection.flush()?;
    Ok(())
}

/// Waits, on a connection of its own.
pub(crate) fn wait(display: &Display, quiet: Duration, timeout: Duration) -> Result<Stillness> {
    let session = display.open()?;
    let damage = watch(&session)?;
    let started = Instant::now();
    let end = started + timeout;
    let mut quiet_until = started + quiet;
    let done = |is_still| Stillness {
        is_still,
        waited_ms: started.elapsed().as_millis() as u64,
    };
    loop {
        match session.event(quiet_until.min(end))? {
            Some(Event::DamageNotify(_)) => {
                again(&session, damage)?;
                quiet_until = Instant::now() + quiet;
            }
            Some(_) => {}
            None if Instant::now() >= quiet_until => return Ok(done(true)),
            None => return Ok(done(false)),
        }
    }
}
