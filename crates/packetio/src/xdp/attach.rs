//! The XDP program of one interface, loaded with its maps and attached.
//!
//! This module decides the order in which modes and ways of attaching are tried, and what is
//! written into the maps. `interface.rs` calls it.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::bpf_unsafe::{self as bpf, Map};
use super::netlink;
use super::options::{Take, XdpMode};
use super::program::{
    COUNTER_NO_SOCKET, FLAG_TAKE_ALL, FLAG_TAKE_TCP, MapDef, Program, SETTINGS_FLAGS,
};
use crate::open_error::{Check, OpenError};

/// Name of the program, as `bpftool prog` shows it.
const TITLE: &str = "millstream_xdp";

/// The flag `XDP_FLAGS_SKB_MODE`.
const GENERIC: u32 = 1 << 1;
/// The flag `XDP_FLAGS_DRV_MODE`.
const NATIVE: u32 = 1 << 2;

/// The program with its maps, not attached yet.
#[derive(Debug)]
pub(super) struct Loaded {
    program: OwnedFd,
    sockets: Map,
    owned_v4: Map,
    owned_v6: Map,
    settings: Map,
    counters: Map,
}

impl Loaded {
    /// Creates the maps and loads the built-in program. `wire` names the wire in errors.
    ///
    /// # Errors
    /// `PERM` without `CAP_BPF` and `CAP_NET_ADMIN`; else the verifier's complaint.
    pub(super) fn load(wire: &str) -> Result<Self, OpenError> {
        let program = Program::built_in()
            .map_err(|why| OpenError::refused(wire, format!("bpf/xdp_port.o: {why}")))?;
        let map = |def: &MapDef| {
            Map::create(def).map_err(|errno| OpenError::io(wire, "BPF_MAP_CREATE", errno))
        };
        let maps = program
            .maps
            .iter()
            .map(map)
            .collect::<Result<Vec<_>, _>>()?;
        let insns = program.link(|index| maps.get(index).map_or(-1, Map::raw_fd));
        let loaded = bpf::load(&insns, &program.license, TITLE).map_err(|refused| {
            let step = match refused.verifier.as_str() {
                "" => "BPF_PROG_LOAD".to_owned(),
                words => format!("BPF_PROG_LOAD ({words})"),
            };
            OpenError::io(wire, step, refused.errno)
        })?;
        // The maps are in the order of their declaration, which a test of `program.rs` checks.
        let maps: [Map; 5] = maps
            .try_into()
            .map_err(|_| OpenError::refused(wire, "bpf/xdp_port.o: not the maps expected"))?;
        let [sockets, owned_v4, owned_v6, settings, counters] = maps;
        Ok(Self {
            program: loaded,
            sockets,
            owned_v4,
            owned_v6,
            settings,
            counters,
        })
    }

    /// Sets which frames the program takes from the kernel.
    pub(super) fn set_take(&self, take: Take) -> Result<(), Errno> {
        let flags: u32 = match take {
            Take::Owned => 0,
            Take::Tcp => FLAG_TAKE_TCP,
            Take::All => FLAG_TAKE_ALL,
        };
        self.settings
            .update(&SETTINGS_FLAGS.to_ne_bytes(), &flags.to_ne_bytes())
    }

    /// Makes the program take packets for `address`.
    pub(super) fn own(&self, address: IpAddr) -> Result<(), Errno> {
        let one = 1u32.to_ne_bytes();
        match address {
            IpAddr::V4(v4) => self.owned_v4.update(&v4.octets(), &one),
            IpAddr::V6(v6) => self.owned_v6.update(&v6.octets(), &one),
        }
    }

    /// Leaves packets for `address` to the kernel.
    pub(super) fn disown(&self, address: IpAddr) -> Result<(), Errno> {
        let result = match address {
            IpAddr::V4(v4) => self.owned_v4.delete(&v4.octets()),
            IpAddr::V6(v6) => self.owned_v6.delete(&v6.octets()),
        };
        match result {
            Err(Errno::NOENT) => Ok(()),
            result => result,
        }
    }

    /// Sends frames of `queue` to `socket` until the socket is closed.
    pub(super) fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        self.sockets
            .update(&queue.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes())
    }

    /// Leaves frames of `queue` to the kernel.
    pub(super) fn clear_socket(&self, queue: u32) {
        // The kernel also does this when the socket is closed, so "not found" is no error.
        let _ = self.sockets.delete(&queue.to_ne_bytes());
    }

    /// Number of frames for us on queues without a socket, since the program was loaded.
    pub(super) fn no_socket(&self) -> u64 {
        let mut value = [0; 8];
        match self
            .counters
            .lookup(&COUNTER_NO_SOCKET.to_ne_bytes(), &mut value)
        {
            Ok(()) => u64::from_ne_bytes(value),
            Err(_) => 0,
        }
    }
}

/// Keeps the program attached; dropping it detaches the program.
#[derive(Debug)]
pub(super) enum Hold {
    /// A BPF link, which goes with its descriptor and thus with the process.
    Link(#[allow(dead_code)] OwnedFd),
    /// An attachment by netlink, which is removed on drop but stays if the process is killed.
    Netlink(#[allow(dead_code)] netlink::Attached),
}

/// The ways of attaching that may be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    /// A BPF link, or netlink if the kernel has no links.
    Any,
    /// Netlink only, for tests of the fall-back.
    #[cfg_attr(not(test), allow(dead_code))]
    NetlinkOnly,
}

/// Attaches in the wanted mode; `Auto` tries the best first. Returns the mode used, never `Auto`.
///
/// # Errors
/// One line that says why no mode works, or that the interface has a program already.
pub(super) fn attach(
    loaded: &Loaded,
    wire: &str,
    ifindex: u32,
    mode: XdpMode,
    means: Means,
) -> Result<(Hold, XdpMode), OpenError> {
    let modes: &[(XdpMode, u32, &str)] = match mode {
        XdpMode::Native => &[(XdpMode::Native, NATIVE, "native")],
        XdpMode::Generic => &[(XdpMode::Generic, GENERIC, "generic")],
        XdpMode::Auto => &[
            (XdpMode::Native, NATIVE, "native"),
            (XdpMode::Generic, GENERIC, "generic"),
        ],
    };
    let (mut refusals, mut is_denied) = (Vec::new(), false);
    for &(mode, flags, title) in modes {
        match attach_once(loaded, ifindex, flags, means) {
            Ok(hold) => return Ok((hold, mode)),
            Err(Errno::BUSY | Errno::EXIST) => {
                let why = "another XDP program is attached (see `ip link`)";
                return Err(OpenError::refused_by(Check::Xdp, wire, why));
            }
            Err(errno) => {
                is_denied |= errno == Errno::PERM;
                refusals.push(format!("{title} XDP: {errno}{}", advice(mode, errno)));
            }
        }
    }
    let why = refusals.join("; ");
    Err(match is_denied {
        true => OpenError::refused_by(Check::Capabilities, wire, why),
        false => OpenError::refused(wire, why),
    })
}

/// Explains drivers' errors that are not self-explanatory.
fn advice(mode: XdpMode, errno: Errno) -> &'static str {
    match (mode, errno) {
        (_, Errno::PERM) => " (needs root or CAP_NET_ADMIN)",
        (XdpMode::Native, Errno::RANGE | Errno::INVAL) => {
            " (often the MTU: native XDP needs a frame to fit one page, for veth the peer's)"
        }
        (XdpMode::Native, Errno::NOSPC) => {
            " (veth needs as many RX queues as the peer has TX queues)"
        }
        (XdpMode::Native, Errno::OPNOTSUPP) => " (the driver has none)",
        _ => "",
    }
}

fn attach_once(loaded: &Loaded, ifindex: u32, flags: u32, means: Means) -> Result<Hold, Errno> {
    if means == Means::Any {
        match bpf::link(loaded.program.as_fd(), ifindex, flags) {
            Ok(link) => return Ok(Hold::Link(link)),
            // Kernels before 5.9 return INVAL. So do some drivers, which then repeat it for
            // netlink.
            Err(Errno::INVAL | Errno::NOSYS) => {}
            Err(errno) => return Err(errno),
        }
    }
    let program = rustix::io::fcntl_dupfd_cloexec(&loaded.program, 0)?;
    netlink::Attached::attach(program, ifindex, flags).map(Hold::Netlink)
}

#[cfg(test)]
mod tests;
