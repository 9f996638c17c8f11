//! Recordings of the screen, as files that the files API of the sandbox fetches.
//!
//! Each has a thread with a connection of its own. Pictures are taken at a steady pace and only when
//! something was drawn. A recording that cannot go on, for want of disk or of an X server, ends, keeps
//! what it has and says why; the helper goes on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use x11rb::connection::Connection as _;

use crate::avi::Film;
use crate::capture;
use crate::display::{Display, Session};
use crate::error::{Error, Result};
use crate::limits::{
    RECORDING_BYTES_MAX, RECORDING_FPS_MAX, RECORDING_TIME_MAX, RECORDINGS_KEPT_MAX,
    RECORDINGS_MAX, X_ANSWER_MAX,
};
use crate::picture::{Format, Region, ScreenshotOptions};
use crate::still;

const FPS_DEFAULT: u8 = 10;

/// What to record.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    pub(crate) fps: Option<u8>,
    pub(crate) max_edge: Option<u16>,
    pub(crate) quality: Option<u8>,
    /// After so long the recording ends by itself.
    pub(crate) max_seconds: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Recording,
    Complete,
    /// Ended by what `problem` says; the file holds what came before.
    Failed,
}

/// A recording as callers see it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Recording {
    pub(crate) id: String,
    pub(crate) state: State,
    /// Where the file is, inside the sandbox.
    pub(crate) path: PathBuf,
    pub(crate) width: u16,
    pub(crate) height: u16,
    pub(crate) fps: u8,
    pub(crate) frames: usize,
    pub(crate) bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

struct Entry {
    seen: Arc<Mutex<Recording>>,
    /// Dropped to stop; the thread drops its end of `ended` when it has.
    stop: Option<SyncSender<()>>,
    ended: Option<mpsc::Receiver<()>>,
}

/// All recordings of this helper.
pub(crate) struct Recordings {
    directory: PathBuf,
    entries: Mutex<BTreeMap<String, Entry>>,
}

fn snapshot(seen: &Mutex<Recording>) -> Recording {
    seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

impl Recordings {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            entries: Mutex::default(),
        }
    }

    pub(crate) fn list(&self) -> Vec<Recording> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries
            .values()
            .map(|entry| snapshot(&entry.seen))
            .collect()
    }

    pub(crate) fn get(&self, id: &str) -> Result<Recording> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries
            .get(id)
            .map(|entry| snapshot(&entry.seen))
            .ok_or_else(|| missing(id))
    }

    /// Begins a recording.
    pub(crate) fn start(&self, display: &Display, order: &Order) -> Result<Recording> {
        let fps = order.fps.unwrap_or(FPS_DEFAULT);
        if !(1..=RECORDING_FPS_MAX).contains(&fps) {
            return Err(Error::Invalid(format!(
                "fps is 1 to {RECORDING_FPS_MAX}, not {fps}"
            )));
        }
        let time = order
            .max_seconds
            .map_or(RECORDING_TIME_MAX, Duration::from_secs);
        if time.is_zero() || time > RECORDING_TIME_MAX {
            return Err(Error::Invalid(format!(
                "max_seconds is 1 to {}",
                RECORDING_TIME_MAX.as_secs()
            )));
        }
        let options = ScreenshotOptions {
            max_edge: order.max_edge,
            quality: order.quality,
            format: Format::Jpeg,
            ..ScreenshotOptions::default()
        };
        let quality = options.quality()?;
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let running = entries
            .values()
            .filter(|entry| snapshot(&entry.seen).state == State::Recording)
            .count();
        if running >= RECORDINGS_MAX {
            return Err(Error::Limit(format!(
                "{RECORDINGS_MAX} recordings are running already; end one"
            )));
        }
        let session = display.open()?;
        let region = options.region(session.size()?)?;
        let (width, height) = options.size(region)?;
        let id = uuid::Uuid::now_v7().simple().to_string();
        let path = self.directory.join(format!("{id}.avi"));
        let film = self.create(&path, width, height, fps)?;
        let recording = Recording {
            id: id.clone(),
            state: State::Recording,
            path,
            width,
            height,
            fps,
            frames: 0,
            bytes: film.bytes(),
            problem: None,
        };
        let seen = Arc::new(Mutex::new(recording.clone()));
        let (stop, stopped) = mpsc::sync_channel(1);
        let (ending, ended) = mpsc::sync_channel(1);
        let camera = Camera {
            session,
            region,
            quality,
            film,
            until: Instant::now() + time,
            seen: Arc::clone(&seen),
        };
        thread::Builder::new()
            .name("recording".to_owned())
            .spawn(move || {
                camera.run(&stopped);
                drop(ending);
            })
            .map_err(|e| Error::Failed(format!("no thread for a recording: {e}")))?;
        // Identifiers are in the order of time, so the first that ended is the oldest.
        while entries.len() >= RECORDINGS_KEPT_MAX {
            let old = entries
                .iter()
                .find(|(_, entry)| snapshot(&entry.seen).state != State::Recording);
            let Some(id) = old.map(|(id, _)| id.clone()) else {
                break;
            };
            entries.remove(&id);
        }
        entries.insert(
            id,
            Entry {
                seen,
                stop: Some(stop),
                ended: Some(ended),
            },
        );
        Ok(recording)
    }

    fn create(&self, path: &Path, width: u16, height: u16, fps: u8) -> Result<Film> {
        std::fs::create_dir_all(&self.directory)
            .and_then(|()| Film::create(path, width, height, fps))
            .map_err(|e| {
                Error::Failed(format!(
                    "the recording {} cannot be written: {e}",
                    path.display()
                ))
            })
    }

    /// Ends a recording and waits until its file is complete.
    pub(crate) fn stop(&self, id: &str) -> Result<Recording> {
        let (seen, ended) = {
            let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
            let entry = entries.get_mut(id).ok_or_else(|| missing(id))?;
            entry.stop = None;
            (Arc::clone(&entry.seen), entry.ended.take())
        };
        if let Some(ended) = ended
            && matches!(
                ended.recv_timeout(X_ANSWER_MAX),
                Err(RecvTimeoutError::Timeout)
            )
        {
            return Err(Error::Timeout(format!(
                "recording {id} is told to end and has not yet; look again"
            )));
        }
        Ok(snapshot(&seen))
    }
}

fn missing(id: &str) -> Error {
    Error::NotFound(format!(
        "there is no recording {id:?}; GET /desktop/recordings lists them"
    ))
}

/// Takes the pictures of one recording.
struct Camera {
    session: Session,
    region: Region,
    quality: u8,
    film: Film,
    until: Instant,
    seen: Arc<Mutex<Recording>>,
}

impl Camera {
    fn run(mut self, stopped: &mpsc::Receiver<()>) {
        let problem = self.take(stopped).err();
        let frames = self.film.frames();
        let finished = self
            .film
            .finish()
            .map_err(|e| Error::Failed(format!("the file could not be ended: {e}")));
        let problem = problem.or(finished.err());
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.frames = frames;
        seen.bytes = seen
            .path
            .metadata()
            .map_or(seen.bytes, |metadata| metadata.len());
        seen.state = if problem.is_some() {
            State::Failed
        } else {
            State::Complete
        };
        seen.problem = problem.map(|error| error.to_string());
    }

    fn take(&mut self, stopped: &mpsc::Receiver<()>) -> Result<()> {
        let (width, height, fps) = {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            (seen.width, seen.height, seen.fps)
        };
        let damage = still::watch(&self.session)?;
        let pace = Duration::from_secs(1) / u32::from(fps);
        let mut next = Instant::now();
        let mut is_changed = true;
        while Instant::now() < self.until && self.film.bytes() < RECORDING_BYTES_MAX {
            while self.session.connection.poll_for_event()?.is_some() {
                is_changed = true;
            }
            if is_changed {
                still::again(&self.session, damage)?;
            }
            let jpeg = if is_changed {
                self.picture(width, height)?
            } else {
                Vec::new()
            };
            is_changed = false;
            // A slow moment must not make the film run faster: what was missed is shown longer.
            let mut piece = &jpeg[..];
            loop {
                self.film
                    .add(piece)
                    .map_err(|e| Error::Failed(format!("the recording cannot be written: {e}")))?;
                next += pace;
                piece = &[];
                if next > Instant::now() {
                    break;
                }
            }
            {
                let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                (seen.frames, seen.bytes) = (self.film.frames(), self.film.bytes());
            }
            match stopped.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {}
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// One picture; of a screen that was made smaller, what is left of it.
    fn picture(&self, width: u16, height: u16) -> Result<Vec<u8>> {
        let (now_wide, now_high) = self.session.size()?;
        let region = Region {
            width: self.region.width.min(now_wide),
            height: self.region.height.min(now_high),
            ..self.region
        };
        let mut pixels = capture::pixels(&self.session, region)?;
        if let Ok(cursor) = capture::cursor(&self.session) {
            pixels.draw(&cursor, region);
        }
        pixels
            .scaled(width, height)
            .encode(Format::Jpeg, self.quality)
    }
}
