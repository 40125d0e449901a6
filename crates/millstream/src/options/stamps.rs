//! Time stamps (`SO_TIMESTAMPING`), as far as the stack makes them.

use stack::context::{StampAnswer, StampQuery};

use super::*;

impl SocketOptions<'_> {
    /// Makes the stack record when bytes arrive (`SOF_TIMESTAMPING_RX_SOFTWARE`), for
    /// [`TcpStream::stamps`](crate::TcpStream::stamps).
    ///
    /// # Errors
    /// The kernel's error from a wait for room in the queue of requests.
    #[doc = example!("", "socket.options().set_arrival_stamps(true)?;")]
    pub fn set_arrival_stamps(&self, on: bool) -> io::Result<()> {
        let was_on = self.with_settings(|settings| settings.stamp_arrivals);
        if was_on == on {
            return Ok(());
        }
        self.change(|settings| settings.stamp_arrivals = on);
        self.tell(StampArrivals(on))
    }

    pub(crate) fn stamps(&self) -> io::Result<StampAnswer> {
        if self.stage() != Stage::Connection {
            return Ok(StampAnswer::default());
        }
        let socket = self.id;
        let read = self.inner.state().sockets.at(self.id).rx.head();
        self.inner.ask(|answer| {
            Control::Stamps(StampQuery {
                socket,
                read,
                answer,
            })
        })
    }
}
