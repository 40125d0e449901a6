//! What a socket is told of ICMP errors (`IP_RECVERR`, `IPV6_RECVERR`).

use stack::context::{IcmpNote, IcmpNoteQuery};

use super::*;

impl SocketOptions<'_> {
    /// `IP_RECVERR`: an ICMP error about a connection that goes on makes the socket ready with [`Readiness::ERROR`](crate::Readiness::ERROR) until
    /// [`TcpStream::take_soft_error`](crate::TcpStream::take_soft_error) has told it. Off, it is told only to who asks.
    ///
    /// # Errors
    /// The kernel's, should this have to wait; so for all that follow.
    pub fn set_receive_errors_v4(&self, on: bool) -> io::Result<()> {
        self.set_receive_errors([on, self.receive_errors()[1]])
    }

    /// `IPV6_RECVERR`: the same for ICMPv6. Attempts to connect that ICMPv6 ended are told in full only to who has set it.
    ///
    /// # Errors
    /// As [`set_receive_errors_v4`](Self::set_receive_errors_v4).
    pub fn set_receive_errors_v6(&self, on: bool) -> io::Result<()> {
        self.set_receive_errors([self.receive_errors()[0], on])
    }

    /// `IP_RECVERR` and `IPV6_RECVERR`
    #[must_use]
    pub fn receive_errors(&self) -> [bool; 2] {
        self.look(|settings| settings.receive_errors)
    }

    fn set_receive_errors(&self, asked: [bool; 2]) -> io::Result<()> {
        let [v4, v6] = asked;
        self.change(|settings| settings.receive_errors = asked);
        self.tell(SocketOption::ReceiveErrors { v4, v6 })
    }

    pub(crate) fn icmp_note(&self) -> io::Result<Option<IcmpNote>> {
        let (answer, mut answers) = ring::spsc::queue(1);
        let socket = self.id;
        self.inner
            .control(Control::IcmpNote(IcmpNoteQuery { socket, answer }))?;
        self.inner.block_unannounced(|_| answers.pop().map(Ok))
    }
}
