//! The blocks of a pcapng file (draft-ietf-opsawg-pcapng): section header, interface description,
//! enhanced packet.
//!
//! Owns the sink. Knows no port: `mill capture` and tests may write with it directly.

use std::io::{self, Write};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;
const OPTION_END: u16 = 0;
const OPTION_SHB_APPLICATION: u16 = 4;
const OPTION_IF_NAME: u16 = 2;
const OPTION_IF_TSRESOL: u16 = 9;
const OPTION_EPB_FLAGS: u16 = 2;
/// Timestamps count 10^-9 s.
const RESOLUTION_NS: u8 = 9;

/// Type and both lengths of a block.
const FRAME_OF_BLOCK: usize = 12;
/// The fixed fields of an enhanced packet block.
const PACKET_FIXED: usize = 20;
/// Its one option and the end of options.
const PACKET_OPTIONS: usize = 12;

/// Which way a frame went, as seen from the port's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    Inbound,
    /// Sent.
    Outbound,
}

/// Writes a pcapng file with one Ethernet interface.
#[derive(Debug)]
pub struct PcapWriter<W> {
    sink: W,
}

impl<W: Write> PcapWriter<W> {
    /// Starts a file: section header and interface.
    ///
    /// # Errors
    /// Of the sink.
    pub fn new(mut sink: W, interface: &str) -> io::Result<Self> {
        let mut body = Vec::new();
        body.extend(BYTE_ORDER_MAGIC.to_le_bytes());
        body.extend(1u16.to_le_bytes());
        body.extend(0u16.to_le_bytes());
        body.extend(u64::MAX.to_le_bytes());
        option(&mut body, OPTION_SHB_APPLICATION, b"millstream");
        option(&mut body, OPTION_END, b"");
        block(&mut sink, SECTION_HEADER, &body)?;
        body.clear();
        body.extend(LINKTYPE_ETHERNET.to_le_bytes());
        body.extend(0u16.to_le_bytes());
        // No limit on a frame's length.
        body.extend(0u32.to_le_bytes());
        option(&mut body, OPTION_IF_NAME, interface.as_bytes());
        option(&mut body, OPTION_IF_TSRESOL, &[RESOLUTION_NS]);
        option(&mut body, OPTION_END, b"");
        block(&mut sink, INTERFACE, &body)?;
        Ok(Self { sink })
    }

    /// Writes one frame. `bytes` may be cut short; `len` is the length that it had on the wire.
    ///
    /// # Errors
    /// Of the sink.
    pub fn frame(
        &mut self,
        now_ns: u64,
        direction: Direction,
        bytes: &[u8],
        len: usize,
    ) -> io::Result<()> {
        let padding = bytes.len().next_multiple_of(4) - bytes.len();
        let total = FRAME_OF_BLOCK + PACKET_FIXED + bytes.len() + padding + PACKET_OPTIONS;
        let mut head = [0; 8 + PACKET_FIXED];
        let words = [
            ENHANCED_PACKET,
            total as u32,
            0,
            (now_ns >> 32) as u32,
            now_ns as u32,
            bytes.len() as u32,
            len as u32,
        ];
        for (place, word) in head.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.sink.write_all(&head)?;
        self.sink.write_all(bytes)?;
        self.sink.write_all(&[0; 3][..padding])?;
        let flags: u32 = match direction {
            Direction::Inbound => 1,
            Direction::Outbound => 2,
        };
        let mut tail = [0; PACKET_OPTIONS + 4];
        tail[..2].copy_from_slice(&OPTION_EPB_FLAGS.to_le_bytes());
        tail[2..4].copy_from_slice(&4u16.to_le_bytes());
        tail[4..8].copy_from_slice(&flags.to_le_bytes());
        tail[12..].copy_from_slice(&(total as u32).to_le_bytes());
        self.sink.write_all(&tail)
    }

    /// Passes on what is buffered.
    ///
    /// # Errors
    /// Of the sink.
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

/// Writes a block around `body`, which is a multiple of 4 bytes long.
fn block(sink: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let total = ((FRAME_OF_BLOCK + body.len()) as u32).to_le_bytes();
    sink.write_all(&kind.to_le_bytes())?;
    sink.write_all(&total)?;
    sink.write_all(body)?;
    sink.write_all(&total)
}
