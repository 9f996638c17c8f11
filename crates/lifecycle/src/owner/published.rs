//! The sandbox as clients see it and as it is recorded. The two differ in the metadata, which is
//! shown when it is durable.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;

use crate::caller::Tenant;
use crate::error::Error;
use crate::machine::MachineState;
use crate::metadata::{Asked, Metadata, Patch};
use crate::sandbox::Sandbox;

pub(super) struct Published {
    /// With the metadata as it will be recorded.
    sandbox: Sandbox,
    metadata: Metadata,
    view: watch::Sender<Arc<Sandbox>>,
}

impl Published {
    pub(super) fn new(sandbox: Sandbox) -> (Published, watch::Receiver<Arc<Sandbox>>) {
        let (view, view_out) = watch::channel(Arc::new(sandbox.clone()));
        let metadata = Metadata::new(sandbox.metadata.clone());
        let published = Published {
            sandbox,
            metadata,
            view,
        };
        (published, view_out)
    }

    /// As it is to be recorded.
    pub(super) fn record(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Whose it is, which never changes.
    pub(super) fn tenant(&self) -> Tenant {
        self.sandbox.tenant.clone()
    }

    /// As clients see it.
    pub(super) fn shown(&self) -> Arc<Sandbox> {
        self.view.borrow().clone()
    }

    /// Shows the machine_state, if clients can see a difference.
    pub(super) fn update(&mut self, machine_state: &MachineState, now: impl FnOnce() -> Timestamp) {
        if machine_state.copy_to(&mut self.sandbox, now) {
            self.show();
        }
    }

    /// A change of the metadata that becomes durable with this version of the record.
    pub(super) fn patch_metadata(&mut self, version: u64, patch: Patch, asked: Asked) {
        self.metadata.add(version, patch, asked);
        self.sandbox.metadata = self.metadata.recorded();
    }

    /// Shows changes of the metadata that are durable, takes back those that are not.
    pub(super) fn settle_metadata(&mut self, version: u64, saved: &Result<(), Error>) {
        let askers = self.metadata.settle(version, saved.is_ok());
        if askers.is_empty() {
            return;
        }
        self.sandbox.metadata = self.metadata.recorded();
        self.show();
        let sandbox = self.shown();
        for (asker, _name) in askers {
            let _ = asker.send(saved.clone().map(|()| sandbox.clone()));
        }
    }

    fn show(&mut self) {
        let mut shown = self.sandbox.clone();
        shown.metadata.clone_from(self.metadata.shown());
        self.view.send_replace(Arc::new(shown));
    }
}
