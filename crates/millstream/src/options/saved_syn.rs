//! The headers of the SYN that made a connection (`TCP_SAVED_SYN`).

use stack::context::SavedSynQuery;

use super::*;

impl SocketOptions<'_> {
    /// `TCP_SAVED_SYN`: takes the headers of the SYN that made the connection. Empty if the
    /// listener saved none ([`set_save_syn`](Self::set_save_syn)), or if they were taken before.
    ///
    /// # Errors
    /// `EINVAL` if the headers are longer than `room`; they stay.
    #[doc = example!("", "assert_eq!(socket.options().saved_syn(100)?, []);")]
    pub fn saved_syn(&self, room: usize) -> io::Result<Vec<u8>> {
        if self.stage() != Stage::Connection {
            return Ok(Vec::new());
        }
        let socket = self.id;
        let saved = self.inner.ask(|answer| {
            Control::SavedSyn(SavedSynQuery {
                socket,
                room,
                answer,
            })
        })?;
        saved.map_err(|_| invalid())
    }
}
