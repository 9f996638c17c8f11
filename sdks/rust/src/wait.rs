//! Waiting for a change on the server: told by its stream of events where it has one, by asking
//! again where it does not.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::Instant;

use crate::client::Client;
use crate::error::{Error, Result};

/// How long to wait before asking a server again that tells nobody of changes.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// Calls `check` now and after every change until it returns something, or `timeout` has passed.
pub(crate) async fn until<T, F, Answer>(
    client: &Client,
    sandbox_id: Option<&str>,
    what: &str,
    timeout: Duration,
    check: F,
) -> Result<T>
where
    F: Fn() -> Answer,
    Answer: Future<Output = Result<Option<T>>>,
{
    let deadline = Instant::now() + timeout;
    let waiting = async {
        if let Some(done) = check().await? {
            return Ok(done);
        }
        loop {
            match client.events(sandbox_id, None).await {
                Ok(events) => {
                    // Asked only now that no change can be missed any more.
                    let mut events = pin!(events);
                    loop {
                        if let Some(done) = check().await? {
                            return Ok(done);
                        }
                        if !matches!(events.next().await, Some(Ok(_))) {
                            break;
                        }
                    }
                }
                Err(error) if error.is_unknown_route() => {}
                Err(error) => return Err(error),
            }
            tokio::time::sleep(ASK_AGAIN).await;
            if let Some(done) = check().await? {
                return Ok(done);
            }
        }
    };
    tokio::time::timeout_at(deadline, waiting)
        .await
        .map_err(|_| Error::Timeout {
            what: format!("waiting for {what}"),
            after: timeout,
        })?
}
