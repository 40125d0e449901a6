//! TCP Fast Open of a connection, at either end (RFC 7413).

mod client;
mod server;
