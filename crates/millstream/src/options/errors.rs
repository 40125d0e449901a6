//! The ICMP error that ended an attempt to connect.

use stack::context::{IcmpNote, IcmpNoteQuery};

use super::*;

impl SocketOptions<'_> {
    pub(crate) fn icmp_note(&self) -> io::Result<Option<IcmpNote>> {
        let socket = self.id;
        self.inner
            .ask(|answer| Control::IcmpNote(IcmpNoteQuery { socket, answer }))
    }
}
