//! The kernel's sockets through io_uring: what an epoll server and client do with a system call
//! each, here in batches.
//!
//! The server accepts by one multishot operation, answers with a send that the close is linked to.
//! The client's connect, send and receive are one chain; with one request per connection its
//! receive waits for the response and the server's end together.

pub mod client;
pub mod server;
