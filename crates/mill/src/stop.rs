//! The request to stop, as a descriptor that becomes readable: on SIGINT and SIGTERM, or when
//! another thread raises it.

use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;

use ::mux::capabilities::drop_all;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A pipe that is never read: one byte makes it readable for all threads for good.
pub struct Stop {
    reader: PipeReader,
    writer: PipeWriter,
}

impl Stop {
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        Ok(Self { reader, writer })
    }

    /// A request that SIGINT and SIGTERM raise from now on.
    pub fn on_signals() -> io::Result<Self> {
        let stop = Self::new()?;
        let writer = stop.writer.try_clone()?;
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        thread::spawn(move || {
            // The thread only writes to a pipe, and may outlive the capabilities of the others.
            let _ = drop_all();
            for _ in signals.forever() {
                raise(&writer);
            }
        });
        Ok(stop)
    }

    pub fn raise(&self) {
        raise(&self.writer);
    }

    /// True once the request was raised.
    pub fn is_raised(&self) -> bool {
        let mut polled = [PollFd::new(&self.reader, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// A descriptor that is readable once the request was raised.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

fn raise(mut writer: &PipeWriter) {
    // The write fails only if there is no thread to stop.
    let _ = writer.write(&[1]);
}
