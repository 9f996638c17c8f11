//! Containers without Docker.

pub mod image;
