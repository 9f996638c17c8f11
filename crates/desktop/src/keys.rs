//! Names of keys and characters as keysyms (X11 protocol, appendix A; keysymdef.h).
//!
//! Names are those of X (`Return`, `Page_Down`, `ctrl+shift+t` as xdotool writes it) and those that
//! computer-use models write (`ENTER`, `ARROWLEFT`, `CMD`), in any case.

use crate::error::{Error, Result};

/// Keysyms above this are Unicode characters.
const UNICODE: u32 = 0x0100_0000;
const F1: u32 = 0xffbe;
const KEYPAD_0: u32 = 0xffb0;
const FUNCTION_KEYS: u32 = 35;

pub(crate) const SHIFT: u32 = 0xffe1;

const NAMED: &[(&str, u32)] = &[
    ("backspace", 0xff08),
    ("tab", 0xff09),
    ("linefeed", 0xff0a),
    ("return", 0xff0d),
    ("enter", 0xff0d),
    ("pause", 0xff13),
    ("scroll_lock", 0xff14),
    ("escape", 0xff1b),
    ("esc", 0xff1b),
    ("home", 0xff50),
    ("left", 0xff51),
    ("arrowleft", 0xff51),
    ("up", 0xff52),
    ("arrowup", 0xff52),
    ("right", 0xff53),
    ("arrowright", 0xff53),
    ("down", 0xff54),
    ("arrowdown", 0xff54),
    ("page_up", 0xff55),
    ("pageup", 0xff55),
    ("prior", 0xff55),
    ("page_down", 0xff56),
    ("pagedown", 0xff56),
    ("next", 0xff56),
    ("end", 0xff57),
    ("print", 0xff61),
    ("printscreen", 0xff61),
    ("insert", 0xff63),
    ("menu", 0xff67),
    ("num_lock", 0xff7f),
    ("numlock", 0xff7f),
    ("kp_enter", 0xff8d),
    ("kp_multiply", 0xffaa),
    ("kp_add", 0xffab),
    ("kp_subtract", 0xffad),
    ("kp_decimal", 0xffae),
    ("kp_divide", 0xffaf),
    ("shift", SHIFT),
    ("shift_l", SHIFT),
    ("shift_r", 0xffe2),
    ("ctrl", 0xffe3),
    ("control", 0xffe3),
    ("control_l", 0xffe3),
    ("ctrl_l", 0xffe3),
    ("control_r", 0xffe4),
    ("ctrl_r", 0xffe4),
    ("caps_lock", 0xffe5),
    ("capslock", 0xffe5),
    ("meta", 0xffe7),
    ("meta_l", 0xffe7),
    ("alt", 0xffe9),
    ("option", 0xffe9),
    ("alt_l", 0xffe9),
    ("alt_r", 0xffea),
    ("altgr", 0xfe03),
    ("iso_level3_shift", 0xfe03),
    ("super", 0xffeb),
    ("super_l", 0xffeb),
    ("cmd", 0xffeb),
    ("command", 0xffeb),
    ("win", 0xffeb),
    ("super_r", 0xffec),
    ("delete", 0xffff),
    ("del", 0xffff),
    ("space", 0x20),
    ("plus", 0x2b),
    ("minus", 0x2d),
    ("equal", 0x3d),
    ("comma", 0x2c),
    ("period", 0x2e),
    ("slash", 0x2f),
    ("backslash", 0x5c),
    ("semicolon", 0x3b),
    ("apostrophe", 0x27),
    ("grave", 0x60),
    ("bracketleft", 0x5b),
    ("bracketright", 0x5d),
];

/// The keysym that stands for a character, or what is wrong with the character.
pub(crate) fn of_char(character: char) -> Result<u32> {
    match character {
        '\n' | '\r' => Ok(0xff0d),
        '\t' => Ok(0xff09),
        '\u{8}' => Ok(0xff08),
        ' '..='~' | '\u{a0}'..='\u{ff}' => Ok(u32::from(character)),
        other if other.is_control() => Err(Error::Invalid(format!(
            "the control character U+{:04X} cannot be typed; send it as a key",
            u32::from(other)
        ))),
        other => Ok(UNICODE + u32::from(other)),
    }
}

/// The keysyms of a combination such as `ctrl+shift+t`.
pub(crate) fn of_combination(text: &str) -> Result<Vec<u32>> {
    // A plus of one's own is the last character: `ctrl++`.
    let (held, last) = match text.strip_suffix('+') {
        Some("") => ("", "+"),
        Some(rest) => (rest.strip_suffix('+').ok_or_else(|| unknown(text))?, "+"),
        None => text.rsplit_once('+').unwrap_or(("", text)),
    };
    let names = held.split('+').filter(|_| !held.is_empty()).chain([last]);
    names.map(of_name).collect()
}

fn of_name(name: &str) -> Result<u32> {
    let name = name.trim();
    let mut characters = name.chars();
    if let (Some(only), None) = (characters.next(), characters.next()) {
        return of_char(only);
    }
    let lower = name.to_ascii_lowercase();
    if let Some(&(_, keysym)) = NAMED.iter().find(|(known, _)| *known == lower) {
        return Ok(keysym);
    }
    let numbered = |prefix: &str| lower.strip_prefix(prefix)?.parse::<u32>().ok();
    if let Some(number @ 1..=FUNCTION_KEYS) = numbered("f") {
        return Ok(F1 + number - 1);
    }
    if let Some(number @ 0..=9) = numbered("kp_") {
        return Ok(KEYPAD_0 + number);
    }
    Err(unknown(name))
}

fn unknown(name: &str) -> Error {
    Error::Invalid(format!(
        "no key is called {name:?}; keys are single characters and names such as Return, Escape, Page_Down, F5, ctrl, \
         joined by + (ctrl+shift+t)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[u32]) {
        assert_eq!(of_combination(text).unwrap(), expected, "{text}");
    }

    #[test]
    fn names_of_people_and_models() {
        check("Return", &[0xff0d]);
        check("ENTER", &[0xff0d]);
        check("ctrl+shift+T", &[0xffe3, 0xffe1, 0x54]);
        check("cmd+c", &[0xffeb, 0x63]);
        check("F12", &[0xffc9]);
        check("KP_7", &[0xffb7]);
        check("+", &[0x2b]);
        check("ctrl++", &[0xffe3, 0x2b]);
        check("é", &[0xe9]);
        check("ж", &[0x0100_0436]);
        check("😀", &[0x0101_f600]);
        for bad in ["", "ctrl+", "nokey", "F0", "F99", "ctrl+nokey", "\u{1}"] {
            assert!(of_combination(bad).is_err(), "{bad:?}");
        }
    }
}
