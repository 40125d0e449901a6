//! The applications of a world. A seed determines the bytes of each stream, so a reader can check
//! every byte.

pub mod end;
pub mod ledger;
pub mod sockets;
pub mod stream;
