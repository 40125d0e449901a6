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
    /// The user chose it (SO_RCVBUF): it does not grow.
    pub recv_locked: bool,
    /// Send buffer in bytes of memory.
    pub send_bytes: u32,
    /// The user chose it (SO_SNDBUF): it does not grow.
    pub send_locked: bool,
    /// The most that the window begins with (TCP_WINDOW_CLAMP); 0: not set.
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

    /// TCP_WINDOW_CLAMP, no less than half of the least buffer; 0: none.
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

/// The least receive buffer that SO_RCVBUF sets (Linux).
const RECV_BYTES_MIN: u32 = 2304;
/// The least clamp of the window that TCP_WINDOW_CLAMP, or a change of the ratio, leaves (Linux).
pub(crate) const WINDOW_CLAMP_MIN: u32 = RECV_BYTES_MIN / 2;
/// The least send buffer that SO_SNDBUF sets (Linux).
const SEND_BYTES_MIN: u32 = 4608;
/// The largest buffer: keeps windows and their sums within 31 bits.
const BYTES_MAX: u32 = 1 << 30;

fn doubled(asked: u32, min: u32) -> u32 {
    asked.saturating_mul(2).clamp(min, BYTES_MAX)
}

/// The memory that a stack has left for socket buffers. The stack judges it once per turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Memory {
    /// Enough.
    #[default]
    Ample,
    /// Less than half is free: buffers do not grow any more.
    Low,
    /// Little memory is free: windows shrink to what is promised, and data out of order is given up
    /// first.
    Pressure,
    /// Next to nothing is free: nothing out of order is taken.
    Exhausted,
}

/// Denominator of the ratio of payload to memory.
pub(crate) const RATIO_ONE: u64 = 256;
/// The ratio before anything has arrived: half.
pub(crate) const RATIO_DEFAULT: u8 = 128;

/// Payload bytes that `space` bytes of memory hold.
pub(crate) fn window_of(space: i64, ratio: u8) -> i64 {
    space * i64::from(ratio) / RATIO_ONE as i64
}

/// Bytes of memory that hold `window` payload bytes.
pub(crate) fn space_for(window: u64, ratio: u8) -> u64 {
    window * RATIO_ONE / u64::from(ratio.max(1))
}

/// The ratio of `payload` in `memory` bytes.
pub(crate) fn ratio_of(payload: u32, memory: u32) -> u8 {
    let ratio = u64::from(payload) * RATIO_ONE / u64::from(memory.max(1));
    ratio.clamp(1, u64::from(u8::MAX)) as u8
}

/// The memory cost of a segment: a power-of-two buffer with room for headers and book-keeping, and
/// pages for the excess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Bytes of memory.
    pub memory: u32,
    /// Payload bytes that would still fit beside it.
    pub room: u32,
}

/// Bytes that stay free before a segment's headers.
const HEADROOM: u32 = 64;
/// Book-keeping within the buffer.
const BOOKS: u32 = 320;
/// Book-keeping beside it.
const DESCRIPTOR: u32 = 256;
/// The smallest buffer.
const BUFFER_MIN: u32 = 704;
const PAGE: u32 = 4096;
/// Bytes that a buffer of one page carries.
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

/// The window that a connection advertises at first (Linux's initial window; RFC 7323 2.2 for the
/// shift).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitialWindow {
    /// The window in bytes; the field of a SYN holds no more than 65,535 of it.
    pub window: u32,
    /// The window's shift.
    pub shift: u8,
    /// The most that may ever be advertised.
    pub clamp: u32,
}

impl InitialWindow {
    /// The first window for a buffer of this size. `mss`: our MSS without options; `scaling`: both
    /// sides may scale.
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
