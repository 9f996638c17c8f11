//! Containers without Docker.
