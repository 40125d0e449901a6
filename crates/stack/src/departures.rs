//! Frames that leave: which connection sends next and how much, and how its segments become frames
//! in the driver's own buffers.

pub(crate) mod ack_trains;
pub(crate) mod packet_out;
pub(crate) mod tcp_out;
