//! Socket buffers: their sizes, and the window that the receive buffer's memory allows.
//!
//! Sizes are counted as in Linux: payload plus the memory that carries it. The cost of a byte is
//! learnt from arriving segments (the *ratio*), so a peer that sends small segments is promised
//! less. Millstream's own cost is lower than Linux's, so each promise is safe, and applications
//! find the same windows as on Linux (docs/decisions/0012). The receive side owns this state.

use crate::config::{BufferSizes, Config};
use crate::limits::WINDOW_SHIFT_MAX;

/// Buffer sizes with which a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// Receive buffer in bytes of memory.
    pub recv_bytes: u32,
    /// SO_RCVBUF was set, so the receive buffer does not grow by itself.
    pub recv_locked: bool,
    /// Send buffer in bytes of memory.
    pub send_bytes: u32,
    /// SO_SNDBUF was set, so the send buffer does not grow by itself.
    pub send_locked: bool,
    /// Upper limit of the window at first, in bytes (TCP_WINDOW_CLAMP); 0: not set.
    pub window_clamp: u32,
}

impl Buffers {
    /// The sizes that the settings give.
    #[must_use]
    pub fn of(config: &Config) -> Buffers {
        Buffers {
            recv_bytes: config.recv_buffer.bytes_default,
            recv_locked: false,
            send_bytes: config.send_buffer.bytes_default,
            send_locked: false,
            window_clamp: 0,
        }
    }

    /// TCP_WINDOW_CLAMP in bytes, at least half of the smallest buffer; 0: none.
    #[must_use]
    pub fn with_window_clamp(mut self, asked: u32) -> Buffers {
        self.window_clamp = match asked {
            0 => 0,
            asked => asked.max(WINDOW_CLAMP_MIN),
        };
        self
    }

    /// SO_RCVBUF: twice the requested size, within bounds, and fixed from then on. The caller
    /// decides how much each user may ask for.
    #[must_use]
    pub fn with_recv(mut self, asked: u32) -> Buffers {
        self.recv_bytes = doubled(asked, RECV_BYTES_MIN);
        self.recv_locked = true;
        self
    }

    /// SO_SNDBUF: twice the requested size, within bounds, and fixed from then on. The caller
    /// decides how much each user may ask for.
    #[must_use]
    pub fn with_send(mut self, asked: u32) -> Buffers {
        self.send_bytes = doubled(asked, SEND_BYTES_MIN);
        self.send_locked = true;
        self
    }
}

/// Smallest receive buffer that SO_RCVBUF can set (Linux).
const RECV_BYTES_MIN: u32 = 2304;
/// Smallest window clamp that TCP_WINDOW_CLAMP, or a change of the ratio, can set (Linux).
pub(crate) const WINDOW_CLAMP_MIN: u32 = RECV_BYTES_MIN / 2;
/// Smallest send buffer that SO_SNDBUF can set (Linux).
const SEND_BYTES_MIN: u32 = 4608;
/// The largest buffer: keeps windows and their sums within 31 bits.
const BYTES_MAX: u32 = 1 << 30;

fn doubled(asked: u32, min: u32) -> u32 {
    asked.saturating_mul(2).clamp(min, BYTES_MAX)
}

/// Level of the memory that a stack has left for socket buffers. The stack sets it once per turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Memory {
    /// Enough memory is free.
    #[default]
    Ample,
    /// Less than half of the memory is free: buffers no longer grow.
    Low,
    /// Little memory is free: windows shrink to what is promised, and out-of-order data is dropped
    /// first.
    Pressure,
    /// Almost no memory is free: no out-of-order data is stored.
    Exhausted,
}

/// Denominator of the ratio of payload to memory: a ratio of 256 is payload alone.
pub(crate) const RATIO_ONE: u64 = 256;
/// Ratio before anything has arrived: half of the memory is payload.
pub(crate) const RATIO_DEFAULT: u8 = 128;

/// Payload bytes that `space` bytes of memory hold.
pub(crate) fn window_of(space: i64, ratio: u8) -> i64 {
    space * i64::from(ratio) / RATIO_ONE as i64
}

/// Bytes of memory that hold `window` payload bytes.
pub(crate) fn space_for(window: u64, ratio: u8) -> u64 {
    window * RATIO_ONE / u64::from(ratio.max(1))
}

/// The ratio of `payload` bytes to the `memory` bytes that hold them.
pub(crate) fn ratio_of(payload: u32, memory: u32) -> u8 {
    let ratio = u64::from(payload) * RATIO_ONE / u64::from(memory.max(1));
    ratio.clamp(1, u64::from(u8::MAX)) as u8
}

/// Memory that a segment costs in Linux: a power-of-two buffer with room for headers and
/// book-keeping, and pages for the part that exceeds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Bytes of memory.
    pub memory: u32,
    /// Payload bytes that still fit into the segment's memory.
    pub room: u32,
}

/// Bytes that Linux leaves free before a segment's headers.
const HEADROOM: u32 = 64;
/// Bytes of book-keeping within the buffer (Linux's `skb_shared_info`).
const BOOKS: u32 = 320;
/// Bytes of book-keeping outside the buffer (Linux's `sk_buff`).
const DESCRIPTOR: u32 = 256;
/// Bytes of the smallest buffer.
const BUFFER_MIN: u32 = 704;
const PAGE: u32 = 4096;
/// Payload bytes that a buffer of one page carries.
const LINEAR_MAX: u32 = PAGE - HEADROOM - BOOKS;
/// Pages are taken in runs of at most this many bytes.
const RUN_MAX: u32 = 8 * PAGE;

/// The cost of `len` payload bytes behind `headers` bytes of headers.
pub(crate) fn cost_of(len: u32, headers: u32) -> Cost {
    let total = len.saturating_add(headers);
    let linear = if total < PAGE - HEADROOM {
        total
    } else {
        LINEAR_MAX
    };
    let used = (HEADROOM + linear).next_multiple_of(64) + BOOKS;
    let buffer = if used <= BUFFER_MIN {
        BUFFER_MIN
    } else {
        used.next_power_of_two()
    };
    let mut pages = 0u32;
    let mut rest = total - linear;
    while rest > 0 {
        let mut run = RUN_MAX;
        while run > PAGE && rest.next_multiple_of(PAGE) < run {
            run /= 2;
        }
        pages = pages.saturating_add(run);
        rest = rest.saturating_sub(run);
    }
    Cost {
        memory: (buffer + DESCRIPTOR).saturating_add(pages),
        room: buffer - BOOKS - HEADROOM - linear.min(buffer - BOOKS - HEADROOM),
    }
}

/// The first window that a connection advertises (Linux's initial window; RFC 7323 2.2 for the
/// shift).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitialWindow {
    /// The window in bytes. The field of a SYN expresses at most 65,535 of them.
    pub window: u32,
    /// The window's shift.
    pub shift: u8,
    /// Upper limit of every later window, in bytes.
    pub clamp: u32,
}

impl InitialWindow {
    /// The first window for buffers of this size. `mss`: our MSS without options; `scaling`: both
    /// sides scale windows.
    #[must_use]
    pub fn new(config: &Config, buffers: &Buffers, mss: u16, scaling: bool) -> InitialWindow {
        let full = window_of(i64::from(buffers.recv_bytes), RATIO_DEFAULT) as u32;
        let ceiling = u32::from(u16::MAX) << WINDOW_SHIFT_MAX;
        let asked = match buffers.window_clamp {
            0 => ceiling,
            asked => asked.min(ceiling),
        };
        let clamp = if buffers.recv_locked {
            full.min(asked)
        } else {
            asked
        };
        let space = full.min(clamp);
        let mss = u32::from(mss.max(1));
        let window = if space > mss {
            space - space % mss
        } else {
            space
        };
        let mut shift = 0;
        if scaling {
            let BufferSizes { bytes_max, .. } = config.recv_buffer;
            let most = window
                .max(bytes_max)
                .max(config.recv_buffer_option_max)
                .min(clamp);
            shift = (most.max(1).ilog2().saturating_sub(15) as u8).min(WINDOW_SHIFT_MAX);
        }
        InitialWindow {
            window,
            shift,
            clamp: clamp.min(u32::from(u16::MAX) << shift),
        }
    }

    /// The window field of a SYN or SYN-ACK: never scaled (RFC 7323 2.2).
    #[must_use]
    pub fn syn_field(&self) -> u16 {
        self.window.min(u32::from(u16::MAX)) as u16
    }
}

#[cfg(test)]
mod tests;
