//! Tables of a stack: the sockets with their connections, the flow table that finds them, listeners,
//! handshakes in progress, and the compact entries of connections that have ended.

pub(crate) mod accept_queue;
#[cfg(test)]
pub(crate) mod account;
pub(crate) mod dormant;
pub(crate) mod errno;
pub(crate) mod flow_table;
pub(crate) mod half_opens;
pub(crate) mod icmp_notes;
pub(crate) mod listeners;
pub(crate) mod memory_rounds;
pub(crate) mod rx_sink;
pub(crate) mod saved_syns;
pub(crate) mod shedding;
pub(crate) mod slab;
pub(crate) mod sockets;
pub(crate) mod stamps;
pub(crate) mod time_waits;
