//! The osb command line.
