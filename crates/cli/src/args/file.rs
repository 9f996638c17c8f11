//! Commands about the files of a sandbox.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `osb file`.
#[derive(Debug, Subcommand)]
pub enum File {
    /// Show a file.
    Cat {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// The file.
        path: String,
        /// How its text is encoded: utf-8, latin-1 or ascii.
        #[arg(long, value_name = "TEXT", default_value = "utf-8")]
        encoding: String,
    },
    /// Write a file, from --content or standard input.
    Write(Write),
    /// Copy a file of this machine into the sandbox.
    Upload {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// The file here.
        local_path: PathBuf,
        /// The file there.
        remote_path: String,
    },
    /// Copy a file of the sandbox to this machine; what was there before stays until all is here.
    Download {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// The file there.
        remote_path: String,
        /// The file here.
        local_path: PathBuf,
    },
    /// List a directory.
    Ls {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// The directory.
        #[arg(default_value = "/")]
        path: String,
        /// How many levels.
        #[arg(long, default_value_t = 1)]
        depth: u32,
    },
    /// Delete files.
    Rm(Paths),
    /// Move or rename a file.
    Mv {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// From.
        source: String,
        /// To.
        destination: String,
    },
    /// Make directories.
    Mkdir {
        /// The directories, with their sandbox.
        #[command(flatten)]
        paths: Paths,
        /// Whose they are, and who may use them.
        #[command(flatten)]
        owner: Owner,
        /// Mode, such as 0755.
        #[arg(long, value_name = "TEXT")]
        mode: Option<String>,
    },
    /// Delete directories with all they hold.
    Rmdir(Paths),
    /// Find files by name.
    Search {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// Where to look.
        path: String,
        /// Pattern of the name, such as *.py.
        #[arg(short, long, value_name = "TEXT")]
        pattern: String,
    },
    /// What is known of files and directories.
    Info(Paths),
    /// Set who may use a file.
    Chmod {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// The file.
        path: String,
        /// Mode, such as 0755.
        #[arg(long, value_name = "TEXT")]
        mode: String,
        /// Whose it is.
        #[command(flatten)]
        owner: Owner,
    },
    /// Replace text in a file.
    Replace {
        /// The sandbox: its name, its id, or the beginning of that.
        sandbox_id: String,
        /// The file.
        path: String,
        /// What to look for.
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        old: String,
        /// What to put in its place.
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        new: String,
    },
}

/// `osb file write`.
#[derive(Debug, Clone, Args)]
pub struct Write {
    /// The sandbox: its name, its id, or the beginning of that.
    pub sandbox_id: String,
    /// The file.
    pub path: String,
    /// What to write; standard input without it.
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub content: Option<String>,
    /// How the text is encoded in the file: utf-8, latin-1 or ascii.
    #[arg(long, value_name = "TEXT", default_value = "utf-8")]
    pub encoding: String,
    /// Mode, such as 0644.
    #[arg(long, value_name = "TEXT")]
    pub mode: Option<String>,
    /// Whose it is.
    #[command(flatten)]
    pub owner: Owner,
}

/// Paths in a sandbox.
#[derive(Debug, Clone, Args)]
pub struct Paths {
    /// The sandbox: its name, its id, or the beginning of that.
    pub sandbox_id: String,
    /// The paths.
    #[arg(required = true)]
    pub paths: Vec<String>,
}

/// Whose a file is.
#[derive(Debug, Clone, Default, Args)]
pub struct Owner {
    /// Owner, by name or number.
    #[arg(long, value_name = "TEXT")]
    pub owner: Option<String>,
    /// Group, by name or number.
    #[arg(long, value_name = "TEXT")]
    pub group: Option<String>,
}
