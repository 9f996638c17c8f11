//! The bytes of an answer as events, or as values of one type. Knows nothing of what they mean.

use std::collections::VecDeque;

use api::frame::{Decoder, EVENT_BYTES_MAX, StreamItem};
use bytes::Bytes;
use futures_util::Stream;

use crate::error::{Error, Result};
use crate::transport;

/// Longer than any event we send; the published daemon sends whole lines, however long.
const EVENT_BYTES_LIMIT: usize = 16 * EVENT_BYTES_MAX;

/// The bytes of one connection as events.
pub(crate) struct EventReader {
    answer: reqwest::Response,
    decoder: Decoder,
    is_finished: bool,
}

impl EventReader {
    pub(crate) fn new(answer: reqwest::Response) -> Self {
        Self {
            answer,
            decoder: Decoder::new(EVENT_BYTES_LIMIT),
            is_finished: false,
        }
    }

    /// The next events; `None` at the end of the connection.
    pub(crate) async fn frames(&mut self) -> Result<Option<Vec<StreamItem>>> {
        if self.is_finished {
            return Ok(None);
        }
        let unreadable = |error: api::frame::DecodeError| Error::Unreadable {
            what: "an event stream".to_owned(),
            message: error.to_string(),
        };
        let mut items = Vec::new();
        match self.piece().await? {
            Some(piece) => {
                let mut rest: &[u8] = &piece;
                while let Some(frame) = self.decoder.next(&mut rest).map_err(unreadable)? {
                    items.push(frame.item().map_err(unreadable)?);
                }
            }
            None => {
                self.is_finished = true;
                // Half an event at the end of a broken connection comes again when resumed.
                if let Ok(Some(frame)) = self.decoder.finish()
                    && let Ok(item) = frame.item()
                {
                    items.push(item);
                }
            }
        }
        Ok(Some(items))
    }

    async fn piece(&mut self) -> Result<Option<Bytes>> {
        let url = self.answer.url().path().to_owned();
        let piece = self.answer.chunk().await;
        piece.map_err(|error| transport::unreachable(url, error))
    }
}

/// A stream of JSON values of one type: metrics and lifecycle events.
pub(crate) fn values<T: serde::de::DeserializeOwned + Send + 'static>(
    answer: reqwest::Response,
    what: &'static str,
) -> impl Stream<Item = Result<T>> + Send {
    struct State<T> {
        answer: reqwest::Response,
        decoder: Decoder,
        ready: VecDeque<T>,
    }
    let state = State {
        answer,
        decoder: Decoder::new(EVENT_BYTES_LIMIT),
        ready: VecDeque::new(),
    };
    futures_util::stream::try_unfold(state, move |mut state| async move {
        loop {
            if let Some(value) = state.ready.pop_front() {
                return Ok(Some((value, state)));
            }
            let url = state.answer.url().path().to_owned();
            let piece = state.answer.chunk().await;
            let Some(piece) = piece.map_err(|error| transport::unreachable(url, error))? else {
                return Ok(None);
            };
            let unreadable = |error: api::frame::DecodeError| Error::Unreadable {
                what: what.to_owned(),
                message: error.to_string(),
            };
            let mut rest: &[u8] = &piece;
            while let Some(frame) = state.decoder.next(&mut rest).map_err(unreadable)? {
                state.ready.push_back(frame.json().map_err(unreadable)?);
            }
        }
    })
}
