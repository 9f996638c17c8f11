//! Commands about what stands beside a sandbox: its egress rules, its credentials, its
//! diagnostics.

use clap::{Args, Subcommand};

/// `osb egress`.
#[derive(Debug, Subcommand)]
pub enum Egress {
    /// Show what a sandbox may reach.
    Get {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
    },
    /// Add rules, or change those for the same target.
    Patch {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// Rule as ACTION=TARGET, such as allow=packages.example.com; repeatable.
        #[arg(long, required = true, value_name = "ACTION=TARGET")]
        rule: Vec<String>,
    },
    /// Take away the rules for targets.
    Delete {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// Target, such as packages.example.com; repeatable.
        #[arg(long, required = true, value_name = "TARGET")]
        target: Vec<String>,
    },
}

/// `osb credential-vault`.
#[derive(Debug, Subcommand)]
pub enum Vault {
    /// Fill the vault for the first time.
    Create(VaultFile),
    /// Show what the vault holds, without secrets.
    Get {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
    },
    /// Change credentials and bindings, all at once or not at all.
    Patch(VaultFile),
    /// Empty the vault.
    Delete {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
    },
    /// Credentials, without secrets.
    #[command(subcommand)]
    Credential(Credential),
    /// Bindings: which requests get which credential.
    #[command(subcommand)]
    Binding(Binding),
}

/// A sandbox, and a file for its vault.
#[derive(Debug, Clone, Args)]
pub struct VaultFile {
    /// The sandbox: its name, its id, or the beginning of that.
    pub sandbox_id: String,
    /// JSON or YAML file; - is standard input.
    #[arg(long, value_name = "TEXT")]
    pub file: String,
}

/// `osb credential-vault credential`.
#[derive(Debug, Subcommand)]
pub enum Credential {
    /// List credentials.
    List {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
    },
    /// Show a credential.
    Get {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// The credential's name.
        credential_name: String,
    },
}

/// `osb credential-vault binding`.
#[derive(Debug, Subcommand)]
pub enum Binding {
    /// List bindings.
    List {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
    },
    /// Show a binding.
    Get {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// The binding's name.
        binding_name: String,
    },
}

/// `osb diagnostics`.
#[derive(Debug, Subcommand)]
pub enum Diagnostics {
    /// Logs of a sandbox.
    Logs {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// Which: container, all, or what the server has beside.
        #[arg(short, long, value_name = "TEXT")]
        scope: String,
    },
    /// Events of a sandbox.
    Events {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// Which: runtime, all, or what the server has beside.
        #[arg(short, long, value_name = "TEXT")]
        scope: String,
    },
}

/// `osb devops`.
#[derive(Debug, Subcommand)]
pub enum Devops {
    /// Deprecated: use `osb diagnostics logs`.
    Logs {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// How many of the last lines.
        #[arg(short = 'n', long, default_value_t = 100)]
        tail: u32,
        /// Only what is newer than this, such as 10m or 1h.
        #[arg(short, long, value_name = "TEXT")]
        since: Option<String>,
    },
    /// What the runtime knows of a sandbox.
    Inspect {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
    },
    /// Deprecated: use `osb diagnostics events`.
    Events {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// How many at most.
        #[arg(short, long, default_value_t = 50)]
        limit: u32,
    },
    /// Inspection, events and logs at once.
    Summary {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// How many of the last lines of logs.
        #[arg(short = 'n', long, default_value_t = 50)]
        tail: u32,
        /// How many events at most.
        #[arg(long, default_value_t = 20)]
        event_limit: u32,
    },
}
