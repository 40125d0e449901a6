//! libmtcp: the socket calls of Millstream for C, by the names that mTCP gave them.
//!
//! The headers in `include/` say what the calls promise. This crate translates and nothing more: what C programs need and Rust programs have not is added to
//! `millstream`.

#![forbid(unsafe_code)]
