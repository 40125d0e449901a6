//! The applications of a world: what they write is a stream that a seed determines, so whoever
//! reads it can check every byte.

pub mod end;
pub mod ledger;
pub mod sockets;
pub mod stream;
