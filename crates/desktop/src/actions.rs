//! What a person does with mouse and keyboard, as a list that is done in one request.
//!
//! Lists of different callers never mix: one is done before the next begins. A list that was begun is
//! done to its end even when its caller goes away, so that no key stays pressed.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::Mutex;
use x11rb::protocol::xproto;

use crate::display::{Display, Session};
use crate::error::{Error, Result};
use crate::keyboard::{Borrowed, Chord, fake, write};
use crate::keys;
use crate::limits::{
    ACTIONS_MAX, ACTIONS_TIME_MAX, CLICKS_MAX, HOLD_KEYS_MAX, PATH_POINTS_MAX, SCROLL_NOTCHES_MAX,
    TEXT_CHARS_MAX, WAIT_MAX, X_ANSWER_MAX,
};
use crate::picture::Frame;
use crate::still::{self, Still};

/// One thing to do. Coordinates are those of a picture, see [`Frame`].
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Action {
    Move {
        x: i32,
        y: i32,
    },
    /// Where the pointer is, unless coordinates say otherwise.
    Click {
        x: Option<i32>,
        y: Option<i32>,
        #[serde(default)]
        button: Button,
        count: Option<u8>,
        /// Keys held meanwhile.
        #[serde(default)]
        hold: Vec<String>,
    },
    Press {
        x: Option<i32>,
        y: Option<i32>,
        #[serde(default)]
        button: Button,
    },
    Release {
        x: Option<i32>,
        y: Option<i32>,
        #[serde(default)]
        button: Button,
    },
    /// Along all points, the button pressed at the first and released at the last.
    Drag {
        path: Vec<Point>,
        #[serde(default)]
        button: Button,
        #[serde(default)]
        hold: Vec<String>,
    },
    /// In notches of a wheel: `dy` down, `dx` to the right.
    Scroll {
        x: Option<i32>,
        y: Option<i32>,
        #[serde(default)]
        dx: i32,
        #[serde(default)]
        dy: i32,
        #[serde(default)]
        hold: Vec<String>,
    },
    Type {
        text: String,
    },
    /// A combination such as `ctrl+shift+t`, or a list of keys pressed together.
    Key {
        keys: OneOrMany,
        hold_ms: Option<u64>,
    },
    /// For a time, or until the screen is still.
    Wait {
        ms: Option<u64>,
        still: Option<Still>,
    },
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Button {
    #[default]
    Left,
    #[serde(alias = "wheel")]
    Middle,
    Right,
    Back,
    Forward,
}

impl Button {
    /// The button's number in X.
    fn number(self) -> u8 {
        match self {
            Self::Left => 1,
            Self::Middle => 2,
            Self::Right => 3,
            Self::Back => 8,
            Self::Forward => 9,
        }
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Point {
    pub(crate) x: i32,
    pub(crate) y: i32,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    fn keysyms(&self) -> Result<Vec<u32>> {
        match self {
            Self::One(combination) => keys::of_combination(combination),
            Self::Many(names) => keysyms(names),
        }
    }
}

type Place = Option<(i16, i16)>;

/// An action that was checked, with coordinates of the screen.
enum Step {
    Move(i16, i16),
    Click {
        at: Place,
        button: u8,
        count: u8,
        hold: Vec<u32>,
    },
    Button {
        at: Place,
        button: u8,
        is_down: bool,
    },
    Drag {
        path: Vec<(i16, i16)>,
        button: u8,
        hold: Vec<u32>,
    },
    Scroll {
        at: Place,
        wheel: Vec<(u8, u32)>,
        hold: Vec<u32>,
    },
    Type(String),
    Key {
        keysyms: Vec<u32>,
        held: Duration,
    },
    Wait(Duration),
    Still(Duration, Duration),
}

/// The hands: one list at a time.
pub(crate) struct Hands {
    display: Arc<Display>,
    borrowed: Arc<Mutex<Borrowed>>,
}

impl Hands {
    pub(crate) fn new(display: Arc<Display>) -> Self {
        Self {
            display,
            borrowed: Arc::default(),
        }
    }

    /// Does a list. All of it is checked before any of it is done.
    pub(crate) async fn perform(&self, actions: &[Action], frame: Frame) -> Result<()> {
        if actions.len() > ACTIONS_MAX {
            return Err(Error::Invalid(format!(
                "{} actions; one request takes {ACTIONS_MAX}",
                actions.len()
            )));
        }
        let steps = actions
            .iter()
            .enumerate()
            .map(|(index, action)| {
                check(action, frame).map_err(|e| e.within(&format!("action {index}")))
            })
            .collect::<Result<Vec<_>>>()?;
        let (display, borrowed) = (Arc::clone(&self.display), Arc::clone(&self.borrowed));
        let all = async move {
            let mut borrowed = borrowed.lock_owned().await;
            for (index, step) in steps.into_iter().enumerate() {
                borrowed = run(&display, step, borrowed)
                    .await
                    .map_err(|e| e.within(&format!("action {index}")))?;
            }
            Ok(())
        };
        let bounded = tokio::time::timeout(ACTIONS_TIME_MAX, all);
        match tokio::spawn(bounded).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(Error::Timeout(format!(
                "the actions took longer than {} s; send fewer at once",
                ACTIONS_TIME_MAX.as_secs()
            ))),
            Err(panic) => Err(Error::Failed(format!("the actions ended badly: {panic}"))),
        }
    }
}

fn keysyms(names: &[String]) -> Result<Vec<u32>> {
    if names.len() > HOLD_KEYS_MAX {
        return Err(Error::Invalid(format!(
            "{} keys at once; {HOLD_KEYS_MAX} are the most",
            names.len()
        )));
    }
    let each = names
        .iter()
        .map(|name| keys::of_combination(name))
        .collect::<Result<Vec<_>>>()?;
    Ok(each.concat())
}

fn place(frame: Frame, x: Option<i32>, y: Option<i32>) -> Result<Place> {
    match (x, y) {
        (Some(x), Some(y)) => frame.on_screen(x, y).map(Some),
        (None, None) => Ok(None),
        _ => Err(Error::Invalid(
            "x and y go together; leave out both to stay where the pointer is".to_owned(),
        )),
    }
}

fn bounded(name: &str, ms: u64) -> Result<Duration> {
    let time = Duration::from_millis(ms);
    if time > WAIT_MAX {
        return Err(Error::Invalid(format!(
            "{name} is at most {}, not {ms}",
            WAIT_MAX.as_millis()
        )));
    }
    Ok(time)
}

fn check(action: &Action, frame: Frame) -> Result<Step> {
    match action {
        Action::Move { x, y } => {
            let (x, y) = frame.on_screen(*x, *y)?;
            Ok(Step::Move(x, y))
        }
        Action::Click {
            x,
            y,
            button,
            count,
            hold,
        } => match count.unwrap_or(1) {
            count @ 1..=CLICKS_MAX => {
                let at = place(frame, *x, *y)?;
                Ok(Step::Click {
                    at,
                    button: button.number(),
                    count,
                    hold: keysyms(hold)?,
                })
            }
            count => Err(Error::Invalid(format!(
                "count is 1 to {CLICKS_MAX}, not {count}"
            ))),
        },
        Action::Press { x, y, button } => Ok(Step::Button {
            at: place(frame, *x, *y)?,
            button: button.number(),
            is_down: true,
        }),
        Action::Release { x, y, button } => Ok(Step::Button {
            at: place(frame, *x, *y)?,
            button: button.number(),
            is_down: false,
        }),
        Action::Drag { path, button, hold } => {
            if !(2..=PATH_POINTS_MAX).contains(&path.len()) {
                return Err(Error::Invalid(format!(
                    "a path has 2 to {PATH_POINTS_MAX} points, not {}",
                    path.len()
                )));
            }
            let path = path
                .iter()
                .map(|point| frame.on_screen(point.x, point.y))
                .collect::<Result<_>>()?;
            Ok(Step::Drag {
                path,
                button: button.number(),
                hold: keysyms(hold)?,
            })
        }
        Action::Scroll { x, y, dx, dy, hold } => {
            let (right, down) = (dx.unsigned_abs(), dy.unsigned_abs());
            if right > SCROLL_NOTCHES_MAX || down > SCROLL_NOTCHES_MAX {
                return Err(Error::Invalid(format!(
                    "dx and dy are notches of a wheel, at most {SCROLL_NOTCHES_MAX}"
                )));
            }
            // Buttons 4 to 7 are the wheel: up, down, left, right.
            let wheel = vec![
                (if *dy < 0 { 4 } else { 5 }, down),
                (if *dx < 0 { 6 } else { 7 }, right),
            ];
            Ok(Step::Scroll {
                at: place(frame, *x, *y)?,
                wheel,
                hold: keysyms(hold)?,
            })
        }
        Action::Type { text } => {
            let count = text.chars().count();
            if count > TEXT_CHARS_MAX {
                return Err(Error::Invalid(format!(
                    "the text has {count} characters; one action takes {TEXT_CHARS_MAX}"
                )));
            }
            text.chars()
                .try_for_each(|character| keys::of_char(character).map(drop))?;
            Ok(Step::Type(text.clone()))
        }
        Action::Key { keys, hold_ms } => Ok(Step::Key {
            keysyms: keys.keysyms()?,
            held: bounded("hold_ms", hold_ms.unwrap_or(0))?,
        }),
        Action::Wait {
            ms: Some(ms),
            still: None,
        } => Ok(Step::Wait(bounded("ms", *ms)?)),
        Action::Wait {
            ms: None,
            still: Some(still),
        } => {
            let (quiet, timeout) = still.times()?;
            Ok(Step::Still(quiet, timeout))
        }
        Action::Wait { .. } => Err(Error::Invalid("wait takes either ms or still".to_owned())),
    }
}

type Guard = tokio::sync::OwnedMutexGuard<Borrowed>;

async fn run(display: &Arc<Display>, step: Step, mut borrowed: Guard) -> Result<Guard> {
    match step {
        Step::Wait(time) => tokio::time::sleep(time).await,
        Step::Still(quiet, timeout) => {
            display
                .run_apart(timeout + X_ANSWER_MAX, move |display| {
                    still::wait(display, quiet, timeout)
                })
                .await?;
        }
        Step::Key { keysyms, held } => {
            let again = Arc::clone(display);
            let (chord, guard) = display
                .run(move |session| {
                    let chord = Chord::find(&again, session, &mut borrowed, &keysyms)?;
                    chord.press(session)?;
                    Ok((chord, borrowed))
                })
                .await?;
            borrowed = guard;
            if !held.is_zero() {
                tokio::time::sleep(held).await;
            }
            display.run(move |session| chord.release(session)).await?;
        }
        other => {
            let again = Arc::clone(display);
            borrowed = display
                .run(move |session| {
                    at_once(&again, session, &mut borrowed, &other)?;
                    Ok(borrowed)
                })
                .await?;
        }
    }
    Ok(borrowed)
}

/// What takes no time of its own.
fn at_once(
    display: &Display,
    session: &Session,
    borrowed: &mut Borrowed,
    step: &Step,
) -> Result<()> {
    let mut holding = |hold: &[u32]| {
        let chord = Chord::find(display, session, borrowed, hold)?;
        chord.press(session)?;
        Ok::<_, Error>(chord)
    };
    match step {
        Step::Move(x, y) => motion(session, Some((*x, *y)))?,
        Step::Click {
            at,
            button,
            count,
            hold,
        } => {
            motion(session, *at)?;
            let held = holding(hold)?;
            for _ in 0..*count {
                self::button(session, *button, true)?;
                self::button(session, *button, false)?;
            }
            held.release(session)?;
        }
        Step::Button {
            at,
            button,
            is_down,
        } => {
            motion(session, *at)?;
            self::button(session, *button, *is_down)?;
        }
        Step::Drag { path, button, hold } => {
            motion(session, path.first().copied())?;
            let held = holding(hold)?;
            self::button(session, *button, true)?;
            path.iter()
                .skip(1)
                .try_for_each(|&point| motion(session, Some(point)))?;
            self::button(session, *button, false)?;
            held.release(session)?;
        }
        Step::Scroll { at, wheel, hold } => {
            motion(session, *at)?;
            let held = holding(hold)?;
            for &(number, notches) in wheel {
                for _ in 0..notches {
                    self::button(session, number, true)?;
                    self::button(session, number, false)?;
                }
            }
            held.release(session)?;
        }
        Step::Type(text) => write(display, session, borrowed, text)?,
        Step::Key { .. } | Step::Wait(_) | Step::Still(..) => {}
    }
    session.sync()
}

fn motion(session: &Session, at: Place) -> Result<()> {
    match at {
        Some(at) => fake(session, xproto::MOTION_NOTIFY_EVENT, 0, at),
        None => Ok(()),
    }
}

fn button(session: &Session, number: u8, is_down: bool) -> Result<()> {
    let kind = if is_down {
        xproto::BUTTON_PRESS_EVENT
    } else {
        xproto::BUTTON_RELEASE_EVENT
    };
    fake(session, kind, number, (0, 0))
}
