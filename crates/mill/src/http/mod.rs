//! HTTP/1.1 without input or output: bytes in, values out.
//!
//! This module uses no socket, file or clock, so tests only feed it bytes. The server's side is
//! [`server`], used by `serve`; the client's is [`client`], used by `get`.

pub mod client;
pub mod date;
pub mod media;
pub mod path;
pub mod range;
pub mod request;
pub mod response;
pub mod server;
pub mod status;
pub mod url;
