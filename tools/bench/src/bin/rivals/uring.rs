//! The kernel's sockets through io_uring. An epoll server and client make a system call for each
//! operation; here operations are submitted in batches.
//!
//! The server accepts by one multishot operation. The close, or the next receive, is linked to the
//! send of a response. The client's connect, send and receive are one chain. The receive of the
//! last response waits for the response and the server's end together.

pub mod client;
pub mod server;
