//! Work for later, and in which order: transmit lists, segments without a connection, the timer wheel
//! and the times at which paced data may depart.

pub(crate) mod control_queue;
pub(crate) mod pacing;
pub(crate) mod timers;
pub(crate) mod tx_lists;
