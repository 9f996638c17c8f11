//! What every long-running process does the same way.
