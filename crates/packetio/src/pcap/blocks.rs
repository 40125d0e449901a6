//! The blocks of a pcapng file (draft-ietf-opsawg-pcapng): section header, interface description,
//! enhanced packet.
//!
//! A [`PcapWriter`] owns the sink. It knows no port: `mill capture` and tests write with it
//! directly.

use std::io::{self, Write};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;
const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
const OPTION_SHB_APPLICATION: u16 = 4;
const OPTION_IF_NAME: u16 = 2;
const OPTION_IF_DESCRIPTION: u16 = 3;
const OPTION_IF_TSRESOL: u16 = 9;
const OPTION_EPB_FLAGS: u16 = 2;
const OPTION_EPB_DROPCOUNT: u16 = 4;
const OPTION_ISB_IFRECV: u16 = 4;
const OPTION_ISB_IFDROP: u16 = 5;
/// Timestamp resolution: 10^-9 s.
const RESOLUTION_NS: u8 = 9;

/// Bytes of a block's type and its two lengths.
const FRAME_OF_BLOCK: usize = 12;
/// Bytes of the fixed fields of an enhanced packet block.
const PACKET_FIXED: usize = 20;

/// The direction of a frame, as the port's owner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    Inbound,
    /// Sent.
    Outbound,
}

/// A frame with what the file says of it.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Number of the interface.
    pub interface: u32,
    /// Time at which the frame passed, ns since 1970.
    pub at_ns: u64,
    /// Direction of the frame.
    pub direction: Direction,
    /// The frame's first bytes.
    pub bytes: &'a [u8],
    /// Length of the frame on the wire, bytes.
    pub len: usize,
    /// Number of frames of this interface that were missed since the last one.
    pub missed: u64,
    /// A comment on the frame; empty: none.
    pub comment: &'a str,
}

/// Writes a pcapng file with Ethernet interfaces.
#[derive(Debug)]
pub struct PcapWriter<W> {
    sink: W,
    interfaces: u32,
    options: Vec<u8>,
}

impl<W: Write> PcapWriter<W> {
    /// Starts a file with one interface, which has number 0.
    ///
    /// # Errors
    /// The error of the sink.
    pub fn new(sink: W, interface: &str) -> io::Result<Self> {
        let mut writer = Self::section(sink)?;
        writer.interface(interface, "", 0)?;
        Ok(writer)
    }

    /// Starts a file without an interface.
    ///
    /// # Errors
    /// The error of the sink.
    pub fn section(mut sink: W) -> io::Result<Self> {
        let mut body = Vec::new();
        body.extend(BYTE_ORDER_MAGIC.to_le_bytes());
        body.extend(1u16.to_le_bytes());
        body.extend(0u16.to_le_bytes());
        body.extend(u64::MAX.to_le_bytes());
        option(&mut body, OPTION_SHB_APPLICATION, b"millstream");
        option(&mut body, OPTION_END, b"");
        block(&mut sink, SECTION_HEADER, &body)?;
        Ok(Self {
            sink,
            interfaces: 0,
            options: Vec::new(),
        })
    }

    /// Adds an interface and returns its number. `snap`: most bytes kept of a frame; 0: all.
    ///
    /// # Errors
    /// The error of the sink.
    pub fn interface(&mut self, name: &str, description: &str, snap: u32) -> io::Result<u32> {
        let mut body = Vec::new();
        body.extend(LINKTYPE_ETHERNET.to_le_bytes());
        body.extend(0u16.to_le_bytes());
        body.extend(snap.to_le_bytes());
        option(&mut body, OPTION_IF_NAME, name.as_bytes());
        if !description.is_empty() {
            option(&mut body, OPTION_IF_DESCRIPTION, description.as_bytes());
        }
        option(&mut body, OPTION_IF_TSRESOL, &[RESOLUTION_NS]);
        option(&mut body, OPTION_END, b"");
        block(&mut self.sink, INTERFACE, &body)?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Writes one frame of the first interface. `bytes` may be truncated; `len` is the length on
    /// the wire.
    ///
    /// # Errors
    /// The error of the sink.
    pub fn frame(
        &mut self,
        at_ns: u64,
        direction: Direction,
        bytes: &[u8],
        len: usize,
    ) -> io::Result<()> {
        self.packet(&Packet {
            interface: 0,
            at_ns,
            direction,
            bytes,
            len,
            missed: 0,
            comment: "",
        })
    }

    /// Writes one frame.
    ///
    /// # Errors
    /// The error of the sink.
    pub fn packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        let options = &mut self.options;
        options.clear();
        if !packet.comment.is_empty() {
            option(options, OPTION_COMMENT, packet.comment.as_bytes());
        }
        let flags: u32 = match packet.direction {
            Direction::Inbound => 1,
            Direction::Outbound => 2,
        };
        option(options, OPTION_EPB_FLAGS, &flags.to_le_bytes());
        if packet.missed > 0 {
            option(options, OPTION_EPB_DROPCOUNT, &packet.missed.to_le_bytes());
        }
        option(options, OPTION_END, b"");
        let length = packet.bytes.len();
        let padding = length.next_multiple_of(4) - length;
        let total = FRAME_OF_BLOCK + PACKET_FIXED + length + padding + options.len();
        options.extend((total as u32).to_le_bytes());
        let mut head = [0; 8 + PACKET_FIXED];
        let words = [
            ENHANCED_PACKET,
            total as u32,
            packet.interface,
            (packet.at_ns >> 32) as u32,
            packet.at_ns as u32,
            length as u32,
            packet.len as u32,
        ];
        for (place, word) in head.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.sink.write_all(&head)?;
        self.sink.write_all(packet.bytes)?;
        self.sink.write_all(&[0; 3][..padding])?;
        self.sink.write_all(&self.options)
    }

    /// Writes the statistics of an interface up to `at_ns`: frames that passed, and those that were
    /// missed.
    ///
    /// # Errors
    /// The error of the sink.
    pub fn statistics(
        &mut self,
        interface: u32,
        at_ns: u64,
        passed: u64,
        missed: u64,
    ) -> io::Result<()> {
        let mut body = Vec::new();
        body.extend(interface.to_le_bytes());
        body.extend(((at_ns >> 32) as u32).to_le_bytes());
        body.extend((at_ns as u32).to_le_bytes());
        option(&mut body, OPTION_ISB_IFRECV, &passed.to_le_bytes());
        option(&mut body, OPTION_ISB_IFDROP, &missed.to_le_bytes());
        option(&mut body, OPTION_END, b"");
        block(&mut self.sink, INTERFACE_STATISTICS, &body)
    }

    /// Flushes the sink.
    ///
    /// # Errors
    /// The error of the sink.
    pub fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// Appends an option, padded to 32 bits.
fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Writes a block around `body`, whose length is a multiple of 4.
fn block(sink: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let total = ((FRAME_OF_BLOCK + body.len()) as u32).to_le_bytes();
    sink.write_all(&kind.to_le_bytes())?;
    sink.write_all(&total)?;
    sink.write_all(body)?;
    sink.write_all(&total)
}
