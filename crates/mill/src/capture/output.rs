//! The file that a capture is written to, or a ring of files.
//!
//! Each file begins with all interfaces and ends with the number of frames that each has missed.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use packetio::pcap::{Direction, Packet, PcapWriter};

use super::sources::{Frame, Interface};

/// Bytes that are buffered before a write.
const BUFFER_BYTES: usize = 64 * 1024;

/// Limits of a file and of a ring of files.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes to keep of each frame.
    pub snap: u32,
    /// Bytes after which the next file begins; `None`: there is only one file.
    pub file_bytes_max: Option<u64>,
    /// Files in the ring.
    pub files: u32,
}

/// See the module's documentation.
pub struct Output {
    path: PathBuf,
    limits: Limits,
    writer: Option<PcapWriter<Counted>>,
    interfaces: Vec<Known>,
    /// The index in the ring of the present file.
    file: u32,
    /// Bytes in that file.
    bytes: Rc<Cell<u64>>,
    /// Frames written.
    pub captured: u64,
    /// Frames that the logs lost before they were read.
    pub missed: u64,
}

/// A file and the bytes that were written to it, headers of blocks included.
struct Counted {
    sink: Box<dyn Write>,
    bytes: Rc<Cell<u64>>,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.sink.write(bytes)?;
        self.bytes
            .set(self.bytes.get().saturating_add(written as u64));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// An interface with its counts.
struct Known {
    name: String,
    description: String,
    passed: u64,
    missed: u64,
    /// Frames missed since the last one in the file.
    missed_since: u64,
}

impl Output {
    /// The file at `path`, or stdout for `-`. It is opened for the first interface.
    pub fn new(path: &Path, limits: Limits) -> Self {
        Self {
            path: path.to_owned(),
            limits,
            writer: None,
            interfaces: Vec::new(),
            file: 0,
            bytes: Rc::default(),
            captured: 0,
            missed: 0,
        }
    }

    /// Adds an interface, if it is new.
    pub fn interface(&mut self, interface: &Interface) -> io::Result<()> {
        // Interfaces are numbered consecutively.
        if interface.id >= self.interfaces.len() {
            self.interfaces.push(Known {
                name: interface.name.clone(),
                description: interface.description.clone(),
                passed: 0,
                missed: 0,
                missed_since: 0,
            });
            let snap = self.limits.snap;
            if let Some(writer) = &mut self.writer {
                writer.interface(&interface.name, &interface.description, snap)?;
            } else {
                self.begin()?;
            }
        }
        Ok(())
    }

    /// Counts a frame that the filter does not accept.
    pub fn pass(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        self.interface(frame.interface)?;
        self.missed = self.missed.saturating_add(frame.missed);
        if let Some(known) = self.interfaces.get_mut(frame.interface.id) {
            known.passed = known.passed.saturating_add(1).saturating_add(frame.missed);
            known.missed = known.missed.saturating_add(frame.missed);
            known.missed_since = known.missed_since.saturating_add(frame.missed);
        }
        Ok(())
    }

    /// Writes a frame.
    pub fn frame(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        let file_bytes_max = self.limits.file_bytes_max;
        if file_bytes_max.is_some_and(|most| self.bytes.get() >= most) {
            self.finish()?;
            self.file = (self.file + 1) % self.limits.files;
            self.begin()?;
        }
        self.pass(frame)?;
        let (Some(writer), Some(known)) = (
            &mut self.writer,
            self.interfaces.get_mut(frame.interface.id),
        ) else {
            return Ok(());
        };
        let bytes = &frame.bytes[..frame.bytes.len().min(self.limits.snap as usize)];
        let comment = match frame.reason {
            Some(reason) => format!("dropped: {reason}"),
            None => String::new(),
        };
        self.captured += 1;
        writer.packet(&Packet {
            interface: frame.interface.id as u32,
            at_ns: frame.at_ns,
            direction: match frame.is_outbound {
                true => Direction::Outbound,
                false => Direction::Inbound,
            },
            bytes,
            len: frame.wire_bytes,
            missed: std::mem::take(&mut known.missed_since),
            comment: &comment,
        })
    }

    /// Writes the buffered bytes.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.as_mut().map_or(Ok(()), PcapWriter::flush)
    }

    /// Ends the file with the counts of each interface.
    pub fn finish(&mut self) -> io::Result<()> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ns = since.map_or(0, |since| since.as_nanos() as u64);
        if let Some(mut writer) = self.writer.take() {
            for (id, known) in self.interfaces.iter().enumerate() {
                writer.statistics(id as u32, now_ns, known.passed, known.missed)?;
            }
            writer.flush()?;
        }
        Ok(())
    }

    /// Begins the first file, also if there is no interface yet.
    pub fn open(&mut self) -> io::Result<()> {
        match self.writer {
            Some(_) => Ok(()),
            None => self.begin(),
        }
    }

    /// Begins a file, with all interfaces.
    fn begin(&mut self) -> io::Result<()> {
        self.bytes.set(0);
        let sink = Counted {
            sink: self.sink()?,
            bytes: self.bytes.clone(),
        };
        let mut writer = PcapWriter::section(sink)?;
        for known in &self.interfaces {
            writer.interface(&known.name, &known.description, self.limits.snap)?;
        }
        writer.flush()?;
        self.writer = Some(writer);
        Ok(())
    }

    fn sink(&self) -> io::Result<Box<dyn Write>> {
        if self.path.as_os_str() == "-" {
            let stdout = io::stdout();
            return Ok(Box::new(BufWriter::with_capacity(BUFFER_BYTES, stdout)));
        }
        let mut name = self.path.as_os_str().to_owned();
        if self.file > 0 {
            name.push(format!(".{}", self.file));
        }
        let file = File::create(name)?;
        Ok(Box::new(BufWriter::with_capacity(BUFFER_BYTES, file)))
    }
}

#[cfg(test)]
mod tests;
