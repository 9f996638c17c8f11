//! How long each call may take. A call that takes longer is given up and the state stays honest;
//! nothing in the service waits without one of these.

use std::time::Duration;

/// Asking whether an image is here is a lookup. When it takes longer, the image is treated as
/// absent, so that the client is answered `Pending` instead of waiting.
pub(crate) const IS_LOCAL: Duration = Duration::from_secs(2);

/// The published clients give a request 30 s. A creation that takes half of that is answered
/// `Pending` and goes on.
pub(crate) const CREATE_ANSWER: Duration = Duration::from_secs(15);

/// An image that cannot be had is mostly known within one exchange with its registry. The answer to a creation
/// is held so long for that, so that clients hear why it failed; then, or as soon as the image is found, it is
/// answered `Pending`.
pub(crate) const PULL_HOLD: Duration = Duration::from_secs(2);

/// Every other request is answered before the published clients give up, at 30 s.
pub(crate) const ANSWER: Duration = Duration::from_secs(28);

/// Making a sandbox of a local image takes milliseconds here and seconds on a loaded engine.
pub(crate) const CREATE: Duration = Duration::from_secs(60);

/// Waiting for a turn to be made, when thousands are asked for at once.
pub(crate) const CREATE_QUEUE: Duration = Duration::from_secs(600);

/// Tens of gigabytes over a slow line.
pub(crate) const PULL: Duration = Duration::from_secs(3600);

/// The freezer waits for processes in uninterruptible sleep; the clients give up after 30 s.
pub(crate) const PAUSE: Duration = Duration::from_secs(25);

/// As for pausing.
pub(crate) const RESUME: Duration = Duration::from_secs(25);

/// The egress gate answers within milliseconds; one that died is replaced first.
pub(crate) const CHANGE_POLICY: Duration = Duration::from_secs(25);

/// Engines without constant-time snapshots copy the whole writable layer.
pub(crate) const SNAPSHOT: Duration = Duration::from_secs(900);

/// The answer to a snapshot is held so long for what refuses it or fails at once.
pub(crate) const SNAPSHOT_ANSWER: Duration = Duration::from_secs(2);

/// Reading the end of a sandbox's output before it is removed. Deletion does not wait longer for it.
pub(crate) const LAST_LOGS: Duration = Duration::from_secs(1);

/// Beyond the grace period that PID 1 is given.
pub(crate) const DELETE: Duration = Duration::from_secs(20);

/// Deletion waits this long for another call on the same sandbox before it goes ahead.
pub(crate) const DELETE_PATIENCE: Duration = Duration::from_secs(5);

/// Removing a snapshot may remove many files.
pub(crate) const DELETE_SNAPSHOT: Duration = Duration::from_secs(25);

/// The first wait after a deletion that failed; doubles up to [`DELETE_RETRY_MAX`].
pub(crate) const DELETE_RETRY: Duration = Duration::from_secs(1);

/// No longer than a reconciliation period between two tries.
pub(crate) const DELETE_RETRY_MAX: Duration = Duration::from_secs(60);

/// Images and volumes are looked up and named in memory, or by an engine on this machine; the
/// clients give up after 30 s.
pub(crate) const INVENTORY_INDEX: Duration = Duration::from_secs(25);

/// Writing an image of tens of gigabytes to a slow disk, or removing as many files.
pub(crate) const INVENTORY_DISK: Duration = Duration::from_secs(1800);

/// One sandbox's state.
pub(crate) const INSPECT: Duration = Duration::from_secs(10);

/// All sandboxes' states: thousands on a slow engine.
pub(crate) const LIST: Duration = Duration::from_secs(30);

/// Opening a socket on this machine.
pub(crate) const CONNECT: Duration = Duration::from_secs(10);

/// Logs and descriptions.
pub(crate) const DIAGNOSE: Duration = Duration::from_secs(10);

/// Load balancers ask every few seconds and give up as fast.
pub(crate) const HEALTH: Duration = Duration::from_secs(3);

/// One group of writes, fsync on a busy disk included.
pub(crate) const STORE_WRITE: Duration = Duration::from_secs(15);

/// A lookup by key.
pub(crate) const STORE_READ: Duration = Duration::from_secs(10);

/// Reconciliation looks for differences this often; what the backend tells by events is
/// repaired at once, so this is only for what it did not tell.
pub(crate) const RECONCILE: Duration = Duration::from_secs(60);

/// How often old idempotency keys, events and audit entries are forgotten.
pub(crate) const PRUNE: Duration = Duration::from_secs(3600);

/// The service begins to serve after this even when the backend does not answer.
pub(crate) const START: Duration = Duration::from_secs(10);
