//! Frames that arrive: read, checked, and brought to the connection, handshake or listener that
//! they belong to. The stages `packet_in`, `demux` and `tcp_in`, and `other_in` for
//! everything that is not TCP.

pub(crate) mod demux;
pub(crate) mod fast_open_in;
pub(crate) mod other_in;
pub(crate) mod packet_in;
pub(crate) mod passive_opens;
pub(crate) mod tcp_in;
pub(crate) mod time_wait_in;
