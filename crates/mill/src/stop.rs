//! The wish to stop, as a descriptor that becomes readable: on SIGINT and SIGTERM, or when somebody
//! raises it.

use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A pipe that nobody reads from: one byte in it, and it is readable for everyone from then on.
pub struct Stop {
    reader: PipeReader,
    writer: PipeWriter,
}

impl Stop {
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        Ok(Self { reader, writer })
    }

    /// Raised by SIGINT and SIGTERM, from now on.
    pub fn on_signals() -> io::Result<Self> {
        let stop = Self::new()?;
        let writer = stop.writer.try_clone()?;
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        thread::spawn(move || {
            for _ in signals.forever() {
                raise(&writer);
            }
        });
        Ok(stop)
    }

    pub fn raise(&self) {
        raise(&self.writer);
    }

    /// Readable once it is raised.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

fn raise(mut writer: &PipeWriter) {
    // The write fails only if no thread is there to stop.
    let _ = writer.write(&[1]);
}
