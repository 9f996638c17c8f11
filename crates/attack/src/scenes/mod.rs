//! Attacks that need more than a name: company, a prepared directory, somebody who looks from outside.

pub(crate) mod archives;
pub(crate) mod bombs;
pub(crate) mod control;
pub(crate) mod egress;
pub(crate) mod files;
pub(crate) mod hostile_images;
pub(crate) mod neighbours;
pub(crate) mod network;
pub(crate) mod resources;
