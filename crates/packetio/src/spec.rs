//! A wire named in one line, as users write it in a configuration, in `MILLSTREAM_WIRE` or as an
//! argument of `mill`.
//!
//! ```text
//! xdp:IFACE[,mode=auto|native|generic][,queues=N][,queue=K][,ring=N][,zerocopy=auto|off]
//!     [,bulk=auto|off]
//! memif:PATH[,role=server|client][,id=N][,ring=N][,buffer=2048][,queues=N][,secret=..][,mac=..]
//! mux:[PATH][,ring=N][,ports=N]
//! dpdk:PORT[,queues=N][,mtu=N][,offload=auto|off][,plugin=FILE]   ,eal=ARGUMENTS... comes last of all: it takes the rest of the line
//! tap:NAME[,mac=..][,mtu=N][,up=yes|no][,queues=N]
//! packet:IFACE[,mac=..][,promiscuous=yes|no][,queues=N]
//! loopback[:NAME][,mtu=N][,batch=N][,mac=..]
//!
//! after any of them:
//! ,checksum=verify|partial|trust
//! ,loss=0.01,dup=..,reorder=..,corrupt=..,delay=5ms,jitter=..,rate=100mbit,limit=64kb   both directions, or
//! ,rx.loss=..  ,tx.delay=..                                                             one of them
//! ,seed=1,slots=N
//! ,pcap=FILE
//! ```
//!
//! This module owns only the grammar; each backend owns its options. An error is one line that
//! names the place and what was expected there.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::dpdk::DpdkOptions;
use crate::fault::FaultOptions;
use crate::loopback::LoopbackOptions;
use crate::memif::MemifOptions;
use crate::mux::MuxOptions;
use crate::packet::PacketOptions;
use crate::port::ChecksumPolicy;
use crate::tap::TapOptions;
use crate::xdp::{Take, XdpOptions};

mod display;
mod keys;
mod units;

pub use keys::line as set_line_key;
pub(crate) use units::{Bits, Bytes, Nanos};

/// The driver that moves the frames, with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// AF_XDP on an interface.
    Xdp(XdpOptions),
    /// Shared memory with another process.
    Memif(MemifOptions),
    /// A virtual port of `mill mux`.
    Mux(MuxOptions),
    /// A port of DPDK, through the plug-in.
    Dpdk(DpdkOptions),
    /// A TAP interface of the kernel.
    Tap(TapOptions),
    /// A raw AF_PACKET socket on an interface.
    Packet(PacketOptions),
    /// A wire within this process.
    Loopback(LoopbackOptions),
}

/// A wire: a backend with its wrappers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireSpec {
    /// The driver that moves the frames.
    pub backend: Backend,
    /// Overrides the backend's treatment of received checksums.
    pub checksum: Option<ChecksumPolicy>,
    /// Faults of the wire; `None`: it is not wrapped.
    pub fault: Option<FaultOptions>,
    /// Capture file of what the stack sees, faults included; `None`: no capture.
    pub pcap: Option<PathBuf>,
}

/// The error of a specification with its place, as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// The specification as given.
    pub spec: String,
    /// Byte offset of the wrong part.
    pub at: usize,
    /// The wrong part.
    pub part: String,
    /// The error.
    pub why: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wire \"{}\": ", self.spec)?;
        if self.part.is_empty() && self.at == 0 {
            return write!(f, "{}", self.why);
        }
        write!(
            f,
            "\"{}\" (column {}): {}",
            self.part,
            self.at + 1,
            self.why
        )
    }
}

impl std::error::Error for SpecError {}

impl WireSpec {
    /// The first word of the specification, which names the backend.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self.backend {
            Backend::Xdp(_) => "xdp",
            Backend::Memif(_) => "memif",
            Backend::Mux(_) => "mux",
            Backend::Dpdk(_) => "dpdk",
            Backend::Tap(_) => "tap",
            Backend::Packet(_) => "packet",
            Backend::Loopback(_) => "loopback",
        }
    }

    /// True if the host's kernel provides addresses, routes and next hops, so that the user need
    /// not give them.
    #[must_use]
    pub fn has_host(&self) -> bool {
        match &self.backend {
            Backend::Mux(_) => true,
            Backend::Xdp(options) => options.take == Take::Tcp,
            _ => false,
        }
    }

    /// Name of the kernel interface that the wire takes over with its addresses. A TAP has none,
    /// because its interface is the kernel's end.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        match &self.backend {
            Backend::Xdp(options) => Some(&options.interface),
            Backend::Packet(options) => Some(&options.interface),
            Backend::Memif(_)
            | Backend::Mux(_)
            | Backend::Dpdk(_)
            | Backend::Tap(_)
            | Backend::Loopback(_) => None,
        }
    }
}

impl From<Backend> for WireSpec {
    fn from(backend: Backend) -> Self {
        Self {
            backend,
            checksum: None,
            fault: None,
            pcap: None,
        }
    }
}

impl FromStr for WireSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let fail = |at: usize, part: &str, why: String| SpecError {
            spec: text.to_owned(),
            at,
            part: part.to_owned(),
            why,
        };
        let mut parts = Parts { text, at: 0 };
        let (_, head) = parts.next().unwrap_or((0, ""));
        let backend = keys::backend(head).map_err(|why| fail(0, head, why))?;
        let mut spec = Self::from(backend);
        let mut seen: Vec<&str> = Vec::new();
        for (at, part) in parts {
            let (key, value) = match part.split_once('=') {
                Some(both) => both,
                None if part == MIRROR => (part, "yes"),
                None => return Err(fail(at, part, "expected KEY=VALUE".to_owned())),
            };
            if seen.contains(&key) {
                return Err(fail(at, part, format!("{key} is given twice")));
            }
            seen.push(key);
            keys::apply(&mut spec, key, value).map_err(|why| fail(at, part, why))?;
        }
        keys::check(&spec).map_err(|why| fail(0, "", why))?;
        Ok(spec)
    }
}

/// The key without a value.
const MIRROR: &str = "mirror";
/// The key whose value is the rest of the line, because EAL's arguments contain commas.
const EAL: &str = "eal=";

/// The comma-separated parts of a specification, each with its byte offset. `eal=` is the last one,
/// commas included.
struct Parts<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for Parts<'a> {
    type Item = (usize, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.text.get(self.at..)?;
        let part = match rest.starts_with(EAL) {
            true => rest,
            false => rest.split(',').next()?,
        };
        let at = self.at;
        self.at += part.len() + 1;
        Some((at, part))
    }
}

#[cfg(test)]
mod tests;
