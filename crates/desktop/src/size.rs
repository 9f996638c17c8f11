//! Gives the screen another size (RANDR 1.2), as Xtigervnc allows while it runs.

use x11rb::connection::Connection as _;
use x11rb::protocol::randr::{ConnectionExt as _, ModeInfo, SetConfig};

use crate::display::Session;
use crate::error::{Error, Result};
use crate::limits::{SIZE_MAX, SIZE_MIN};

/// Dots in an inch of a screen, for the size in millimetres that RANDR also wants.
const DOTS_PER_INCH: f64 = 96.0;
/// What Xtigervnc says of the pictures it makes in a second; a mode must say something.
const REFRESH_HERTZ: u32 = 60;

/// Sets the size and answers the one that the screen has then.
pub(crate) fn set(session: &Session, width: u16, height: u16) -> Result<(u16, u16)> {
    let is_allowed = |edge: u16| (SIZE_MIN..=SIZE_MAX).contains(&edge);
    if !is_allowed(width) || !is_allowed(height) {
        return Err(Error::Invalid(format!(
            "width and height are {SIZE_MIN} to {SIZE_MAX}, not {width}x{height}"
        )));
    }
    let (connection, root) = (&session.connection, session.root);
    connection.randr_query_version(1, 3)?.reply()?;
    let resources = connection.randr_get_screen_resources(root)?.reply()?;
    let (Some(&output), Some(&crtc)) = (resources.outputs.first(), resources.crtcs.first()) else {
        return Err(Error::Unsupported(
            "the X server has no output whose size could change".to_owned(),
        ));
    };
    let named = format!("{width}x{height}");
    let known = resources
        .modes
        .iter()
        .find(|mode| (mode.width, mode.height) == (width, height));
    let mode = match known {
        Some(mode) => mode.id,
        None => {
            let mode = ModeInfo {
                width,
                height,
                dot_clock: u32::from(width) * u32::from(height) * REFRESH_HERTZ,
                htotal: width,
                vtotal: height,
                hsync_start: width,
                hsync_end: width,
                vsync_start: height,
                vsync_end: height,
                name_len: named.len() as u16,
                ..ModeInfo::default()
            };
            connection
                .randr_create_mode(root, mode, named.as_bytes())?
                .reply()?
                .mode
        }
    };
    let has_mode = connection
        .randr_get_output_info(output, 0)?
        .reply()?
        .modes
        .contains(&mode);
    if !has_mode {
        connection.randr_add_output_mode(output, mode)?.check()?;
    }
    let millimetres = |edge: u16| (f64::from(edge) * 25.4 / DOTS_PER_INCH) as u32;
    // An output must lie inside the screen at every step, so the screen first grows and shrinks last.
    let (old_width, old_height) = session.size()?;
    let (most_wide, most_high) = (width.max(old_width), height.max(old_height));
    connection
        .randr_set_screen_size(
            root,
            most_wide,
            most_high,
            millimetres(most_wide),
            millimetres(most_high),
        )?
        .check()?;
    let information = connection.randr_get_crtc_info(crtc, 0)?.reply()?;
    let set = connection
        .randr_set_crtc_config(
            crtc,
            0,
            resources.config_timestamp,
            0,
            0,
            mode,
            information.rotation,
            &[output],
        )?
        .reply()?;
    if set.status != SetConfig::SUCCESS {
        return Err(Error::DisplayRefused(format!(
            "the size {named} ({:?})",
            set.status
        )));
    }
    connection
        .randr_set_screen_size(root, width, height, millimetres(width), millimetres(height))?
        .check()?;
    connection.flush()?;
    session.size()
}
