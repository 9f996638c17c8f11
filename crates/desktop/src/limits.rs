//! Every bound of the helper, in one place. What is over a bound is refused by name, never cut.

use std::time::Duration;

/// An X server that does not answer within this is as good as gone; the next request tries anew.
pub(crate) const X_ANSWER_MAX: Duration = Duration::from_secs(10);
/// Requests that talk to the X server at once. Each holds a thread, and a server that hangs holds
/// them all.
pub(crate) const X_REQUESTS_MAX: usize = 16;

/// The body of a request: a clipboard of the greatest size, escaped.
pub(crate) const BODY_BYTES_MAX: usize = 8 << 20;

pub(crate) const ACTIONS_MAX: usize = 200;
pub(crate) const TEXT_CHARS_MAX: usize = 20_000;
pub(crate) const CLICKS_MAX: u8 = 10;
pub(crate) const HOLD_KEYS_MAX: usize = 8;
pub(crate) const PATH_POINTS_MAX: usize = 1_000;
/// Notches of a wheel in one action.
pub(crate) const SCROLL_NOTCHES_MAX: u32 = 200;
/// What `wait` and `hold_ms` may ask for.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);
/// How long all actions of one request may take.
pub(crate) const ACTIONS_TIME_MAX: Duration = Duration::from_secs(300);

/// How long nothing may change on a screen that counts as still, unless asked otherwise.
pub(crate) const QUIET_DEFAULT: Duration = Duration::from_millis(200);
pub(crate) const STILL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// How many pictures' coordinates are remembered.
pub(crate) const PICTURES_MAX: usize = 64;
/// What RANDR servers and encoders take: the coordinates of X are signed 16 bits.
pub(crate) const SIZE_MIN: u16 = 64;
pub(crate) const SIZE_MAX: u16 = 8192;

/// Text of the clipboard, in either direction.
pub(crate) const CLIPBOARD_BYTES_MAX: usize = 1 << 20;
/// An owner of the selection that has not answered by then never will.
pub(crate) const CLIPBOARD_OWNER_MAX: Duration = Duration::from_secs(2);

/// Windows in one list; a page can open thousands.
pub(crate) const WINDOWS_MAX: usize = 1_000;
/// The text of one title, in units of four bytes as X counts.
pub(crate) const TITLE_WORDS_MAX: u32 = 1_024;

/// Recordings at once: each takes and encodes its own pictures.
pub(crate) const RECORDINGS_MAX: usize = 4;
/// Recordings that ended and are still listed.
pub(crate) const RECORDINGS_KEPT_MAX: usize = 100;
pub(crate) const RECORDING_FPS_MAX: u8 = 30;
/// The index of an AVI file counts in 32 bits, and many players in 31.
pub(crate) const RECORDING_BYTES_MAX: u64 = 1 << 30;
pub(crate) const RECORDING_TIME_MAX: Duration = Duration::from_secs(3_600);

/// Live views at once.
pub(crate) const VIEWERS_MAX: usize = 32;
/// A viewer that has not taken what was sent by then does not read any more.
pub(crate) const VIEWER_SEND_MAX: Duration = Duration::from_secs(30);
/// How long the VNC server may take to accept a connection.
pub(crate) const VNC_CONNECT_MAX: Duration = Duration::from_secs(5);
pub(crate) const VNC_READ_BYTES: usize = 64 << 10;

/// Connections to the browser's debugging port at once, and requests that wait for it.
pub(crate) const BROWSER_REQUESTS_MAX: usize = 64;
/// How long a request waits for a browser that is starting or starts again.
pub(crate) const BROWSER_START_MAX: Duration = Duration::from_secs(30);
/// What the browser may answer to `/json*`: a thousand tabs fit.
pub(crate) const BROWSER_ANSWER_BYTES_MAX: usize = 8 << 20;

/// One file of the live view's page.
pub(crate) const PAGE_BYTES_MAX: u64 = 4 << 20;

/// How long an application may take to say that it has read its keyboard events.
pub(crate) const KEYS_READ_MAX: Duration = Duration::from_millis(250);
