//! Colours, or none: the one place that writes escape sequences for style.

/// What a piece of text means; how it looks is decided here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// As it is.
    None,
    /// Less important.
    Dim,
    /// What a thing is called.
    Id,
    /// The name of a column or field.
    Header,
    /// The name of a table.
    Title,
    /// It is well.
    Good,
    /// It is on its way.
    Busy,
    /// It rests.
    Still,
    /// It failed.
    Bad,
}

/// Whether to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paint {
    is_on: bool,
}

impl Paint {
    /// No colours.
    pub(crate) const PLAIN: Self = Self { is_on: false };

    pub(crate) fn new(is_on: bool) -> Self {
        Self { is_on }
    }

    pub(crate) fn apply(self, style: Style, text: &str) -> String {
        let code = match style {
            Style::None => return text.to_owned(),
            Style::Dim => "2",
            Style::Id => "1;36",
            Style::Header => "1;35",
            Style::Title => "1;36",
            Style::Good => "1;32",
            Style::Busy => "1;33",
            Style::Still => "1;34",
            Style::Bad => "1;31",
        };
        if self.is_on {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// The style and the mark of a state, as words of the protocol name it.
pub(crate) fn of_state(state: &str) -> Option<(Style, &'static str)> {
    let known = match state.to_ascii_lowercase().as_str() {
        "running" | "ready" | "healthy" | "true" | "succeeded" => (Style::Good, "●"),
        "pending" | "creating" | "starting" | "resuming" | "pausing" | "stopping" | "deleting" => {
            (Style::Busy, "◐")
        }
        "paused" => (Style::Still, "⏸"),
        "stopped" | "terminated" | "killed" | "deleted" | "removed" => (Style::Dim, "○"),
        "error" | "failed" | "unhealthy" | "false" => (Style::Bad, "✗"),
        "created" => (Style::Id, "✦"),
        _ => return None,
    };
    Some(known)
}
