//! Telling a client how long work is going, if it asked to be told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext};

/// Where to tell it.
#[derive(Clone)]
pub(crate) struct Progress {
    to: Option<(Peer<RoleServer>, ProgressToken)>,
    /// Progress must grow with each notification; nothing more is known of how far a command is.
    step: Arc<AtomicU64>,
}

impl Progress {
    pub(crate) fn of(context: &RequestContext<RoleServer>) -> Self {
        let token = context.meta.get_progress_token();
        Self {
            to: token.map(|token| (context.peer.clone(), token)),
            step: Arc::new(AtomicU64::new(0)),
        }
    }

    /// Whether anybody wants to know.
    pub(crate) fn is_wanted(&self) -> bool {
        self.to.is_some()
    }

    /// Says what is being done now.
    pub(crate) async fn say(&self, message: impl Into<String>) {
        let Some((peer, token)) = &self.to else {
            return;
        };
        let step = self.step.fetch_add(1, Ordering::Relaxed) + 1;
        let parameters =
            ProgressNotificationParam::new(token.clone(), step as f64).with_message(message.into());
        // Progress is a courtesy; work does not fail for it.
        let _ = peer.notify_progress(parameters).await;
    }
}
