//! The headers of the SYN that made a connection (`TCP_SAVE_SYN`, `TCP_SAVED_SYN`).

use stack::context::SavedSynQuery;

use super::*;

/// From the link's header on.
const FROM_LINK: u8 = 2;

impl SocketOptions<'_> {
    /// `TCP_SAVE_SYN` of a listener: the headers of SYNs are kept for [`saved_syn`](Self::saved_syn), with 1 from the network's on, with 2 from the link's;
    /// 0: they are not.
    ///
    /// # Errors
    /// `InvalidInput` above 2.
    pub fn set_save_syn(&self, how: u8) -> io::Result<()> {
        if how > FROM_LINK {
            return Err(invalid());
        }
        self.change(|settings| settings.save_syn = how);
        self.tell(SocketOption::SaveSyn(how))
    }

    /// `TCP_SAVE_SYN`
    #[must_use]
    pub fn save_syn(&self) -> u8 {
        self.look(|settings| settings.save_syn)
    }

    /// `TCP_SAVED_SYN`: the headers of the SYN that made the connection, and frees them. Empty if none were kept, or they were told already.
    ///
    /// # Errors
    /// `InvalidInput` if they are longer than `room`; they stay.
    pub fn saved_syn(&self, room: usize) -> io::Result<Vec<u8>> {
        if self.stage() != Stage::Connection {
            return Ok(Vec::new());
        }
        let (answer, mut answers) = ring::spsc::queue(1);
        self.inner.control(Control::SavedSyn(SavedSynQuery {
            socket: self.id,
            room,
            answer,
        }))?;
        let saved = self.inner.block_unannounced(|_| answers.pop().map(Ok))?;
        saved.map_err(|_| invalid())
    }
}
