//! The lifecycle server.
