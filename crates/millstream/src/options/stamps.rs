//! Time stamps (`SO_TIMESTAMPING`), as far as the stack has a part in them.

use stack::context::{StampAnswer, StampQuery};

use super::*;

impl SocketOptions<'_> {
    /// It is to be remembered when bytes arrived (`SOF_TIMESTAMPING_RX_SOFTWARE`), for [`TcpStream::stamps`](crate::TcpStream::stamps).
    ///
    /// # Errors
    /// The kernel's, should this have to wait.
    pub fn set_arrival_stamps(&self, on: bool) -> io::Result<()> {
        let was_on = self.look(|settings| settings.stamp_arrivals);
        if was_on == on {
            return Ok(());
        }
        self.change(|settings| settings.stamp_arrivals = on);
        self.tell(SocketOption::StampArrivals(on))
    }

    pub(crate) fn stamps(&self) -> io::Result<StampAnswer> {
        if self.stage() != Stage::Connection {
            return Ok(StampAnswer::default());
        }
        let (answer, mut answers) = ring::spsc::queue(1);
        let read = self.inner.state().sockets.at(self.id).rx.head();
        self.inner.control(Control::Stamps(StampQuery {
            socket: self.id,
            read,
            answer,
        }))?;
        self.inner.block_unannounced(|_| answers.pop().map(Ok))
    }
}
