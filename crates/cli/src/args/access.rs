//! API keys and tenants.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::duration;

/// `osb key …`.
#[derive(Debug, Clone, Subcommand)]
pub enum Key {
    /// Make a key; it is shown this once.
    New(NewKey),
    /// List keys, and when they were last used.
    #[command(visible_alias = "list")]
    Ls,
    /// Revoke keys with their tokens; what is open with them ends.
    Revoke {
        /// The keys: ids, or names that one key has.
        #[arg(required = true)]
        keys: Vec<String>,
    },
    /// Give a key a new value, which is shown this once.
    Rotate {
        /// The key: its id, or its name where one key has it.
        key: String,
        /// How long the old value is good, such as 1h; what is open with it ends at once.
        #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
        grace: Option<Duration>,
    },
    /// Make a token from your own key: for a short time, and no more than that may do.
    Token {
        /// For this sandbox only: its name, its id, or the beginning of that.
        #[arg(long, value_name = "SANDBOX")]
        sandbox: Option<String>,
        /// For this only; repeatable.
        #[arg(long = "action", value_enum, value_name = "ACTION")]
        actions: Vec<Action>,
        /// How long it is good, at most 24h; an hour otherwise.
        #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
        ttl: Option<Duration>,
    },
}

/// `osb key new`.
#[derive(Debug, Clone, Args)]
pub struct NewKey {
    /// For the audit trail.
    pub name: String,
    /// What it may do.
    #[arg(long, value_enum, default_value_t = Role::User)]
    pub role: Role,
    /// Whose sandboxes it is for; your own tenant otherwise.
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// It looks, and changes nothing: the same as --action read.
    #[arg(long, conflicts_with = "actions")]
    pub read_only: bool,
    /// Of what its role may do, only this; repeatable.
    #[arg(long = "action", value_enum, value_name = "ACTION")]
    pub actions: Vec<Action>,
    /// It makes sandboxes of this image only, or of all that begin so, as in python*; repeatable.
    #[arg(long = "allow-image", value_name = "IMAGE")]
    pub images: Vec<String>,
    /// Sandboxes with this label only exist for it, and those that it makes get it; repeatable.
    #[arg(short, long = "label", value_name = "KEY=VALUE")]
    pub labels: Vec<String>,
    /// How long it is good, such as 720h; until it is revoked otherwise.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub expires: Option<Duration>,
}

/// What holders of a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Everything within its tenant, its keys included.
    Admin,
    /// Everything within its tenant but keys.
    Operator,
    /// Makes, uses and removes sandboxes, snapshots and volumes.
    User,
    /// Looks, and changes nothing.
    Viewer,
}

/// One kind of thing that holders of a key do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Action {
    /// Looks at sandboxes, snapshots, volumes, their events and logs.
    Read,
    /// Goes into sandboxes.
    Connect,
    /// Makes sandboxes.
    Create,
    /// Changes and removes sandboxes, snapshots and volumes.
    Change,
    /// Looks after the images of the machine.
    Images,
    /// Reads the audit trail.
    Audit,
    /// Reads what the server counts.
    Metrics,
    /// Makes and revokes keys.
    Keys,
}

/// `osb tenant …`.
#[derive(Debug, Clone, Subcommand)]
pub enum Tenant {
    /// Make tenants.
    #[command(visible_alias = "create")]
    New {
        /// Their names.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// List tenants.
    #[command(visible_alias = "list")]
    Ls,
    /// Show a tenant.
    Get {
        /// Its name.
        name: String,
    },
    /// Remove tenants that have nothing any more, with their keys.
    Rm {
        /// Their names.
        #[arg(required = true)]
        names: Vec<String>,
    },
}
