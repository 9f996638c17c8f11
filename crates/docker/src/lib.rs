//! A backend on a Docker engine.
