//! The contexts that listen at each TCP port: one 64-bit word for each port with a bit for each
//! context, read without locks.
//!
//! A reader may see an old value for a moment. `packetio::mesh` owns the table and lets one thread
//! write at a time.

use crate::sync::Ordering;
use crate::zeroed::{LINE_WORDS, Line, lines};

/// Number of ports.
const PORTS: usize = 1 << 16;

/// A table of the contexts that listen at each port.
///
/// ```
/// use ring::port_masks::PortMasks;
/// let masks = PortMasks::new();
/// masks.set(80, 0b101);
/// assert_eq!((masks.at(80), masks.at(81)), (0b101, 0));
/// ```
pub struct PortMasks {
    words: Box<[Line]>,
}

impl Default for PortMasks {
    fn default() -> Self {
        Self::new()
    }
}

impl PortMasks {
    /// A table without any bit set.
    ///
    /// ```
    /// assert_eq!(ring::port_masks::PortMasks::new().at(443), 0);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self {
            words: lines(PORTS / LINE_WORDS),
        }
    }

    /// The bits of a port.
    ///
    /// ```
    /// assert_eq!(ring::port_masks::PortMasks::default().at(0), 0);
    /// ```
    #[inline]
    #[must_use]
    pub fn at(&self, port: u16) -> u64 {
        let port = usize::from(port);
        self.words[port / LINE_WORDS].0[port % LINE_WORDS].load(Ordering::Acquire)
    }

    /// Sets the bits of a port. Only one thread at a time may call it.
    ///
    /// ```
    /// let masks = ring::port_masks::PortMasks::new();
    /// masks.set(65_535, 1 << 63);
    /// assert_eq!(masks.at(65_535), 1 << 63);
    /// ```
    pub fn set(&self, port: u16, mask: u64) {
        let port = usize::from(port);
        self.words[port / LINE_WORDS].0[port % LINE_WORDS].store(mask, Ordering::Release);
    }
}
