//! The measured systems and their wires.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::frame::turns;

/// A stack at either end, and what lies between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// Epoll server and client on the kernel's loopback.
    Kernel,
    /// The same with one listener, which the server's threads share; each has an epoll set.
    KernelOne,
    /// The same, each side looking at its epoll set for as long before it sleeps as Millstream
    /// looks.
    KernelLooks,
    /// The same with io_uring: multishot accept, receive, and send linked to close.
    KernelUring,
    /// Millstream over memif, the application's thread turning the crank.
    Inline,
    /// The same without receive aggregation and ACK offload.
    InlineAlone,
    /// Millstream over memif, a thread of the stack's own on the application's core.
    Dedicated,
    /// Epoll server and client over veth.
    KernelVeth,
    /// The kernel's client over veth, Millstream's server on AF_XDP.
    XdpServer,
    /// The same without the bulk lane.
    XdpServerOneLane,
    /// Millstream at both ends of a veth pair, on AF_XDP.
    XdpBoth,
    /// The kernel's client over veth, Millstream's server on a virtual port of `mill mux`.
    MuxServer,
    /// The same over `path=memif`.
    MuxMemifServer,
    /// nginx on the kernel, the kernel's client over veth: HTTP.
    Nginx,
    /// The kernel's client over veth, `mill serve` on AF_XDP: HTTP.
    MillServe,
    /// The same without the bulk lane.
    MillServeOneLane,
    /// The same on a packet socket.
    MillServePacket,
    /// The kernel's client over veth, `mill serve` on the kernel: HTTP.
    KernelServe,
    /// The kernel's client over veth, `mill serve` on a virtual port of `mill mux`: HTTP.
    MuxServe,
    /// The same over `path=memif`.
    MuxMemifServe,
    /// Both ends of Millstream in one thread, over an in-process link.
    OneThread,
    /// Both ends of smoltcp in one thread, over a queue in memory.
    Smoltcp,
    /// Both ends of gVisor's netstack in one process, over its pipe link.
    Gvisor,
}

/// The processes of the two sides, and the way between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Two processes, the kernel's loopback between them.
    Loopback,
    /// Two processes, shared memory between them.
    Memif,
    /// Two processes in namespaces of their own.
    Veth,
    /// One process for both.
    Together,
}

/// The program of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    Kernel,
    Uring,
    Inline,
    Dedicated,
}

impl System {
    pub fn place(self) -> Place {
        match self {
            Self::Kernel | Self::KernelOne | Self::KernelLooks | Self::KernelUring => {
                Place::Loopback
            }
            Self::Inline | Self::InlineAlone | Self::Dedicated => Place::Memif,
            Self::KernelVeth
            | Self::XdpServer
            | Self::XdpServerOneLane
            | Self::MuxServer
            | Self::MuxMemifServer
            | Self::XdpBoth
            | Self::Nginx
            | Self::KernelServe
            | Self::MillServe
            | Self::MillServeOneLane
            | Self::MillServePacket
            | Self::MuxServe
            | Self::MuxMemifServe => Place::Veth,
            Self::OneThread | Self::Smoltcp | Self::Gvisor => Place::Together,
        }
    }

    /// The server's stack and the client's.
    pub fn stacks(self) -> (Stack, Stack) {
        match self {
            Self::Kernel
            | Self::KernelOne
            | Self::KernelLooks
            | Self::KernelVeth
            | Self::Nginx
            | Self::KernelServe => (Stack::Kernel, Stack::Kernel),
            Self::KernelUring => (Stack::Uring, Stack::Uring),
            Self::XdpServer
            | Self::XdpServerOneLane
            | Self::MuxServer
            | Self::MuxMemifServer
            | Self::MillServe
            | Self::MillServeOneLane
            | Self::MillServePacket
            | Self::MuxServe
            | Self::MuxMemifServe => (Stack::Inline, Stack::Kernel),
            Self::Dedicated => (Stack::Dedicated, Stack::Dedicated),
            _ => (Stack::Inline, Stack::Inline),
        }
    }

    pub fn is_kernel(self) -> bool {
        matches!(
            self,
            Self::Kernel
                | Self::KernelOne
                | Self::KernelLooks
                | Self::KernelUring
                | Self::KernelVeth
                | Self::Nginx
                | Self::KernelServe
        )
    }

    /// True if a server on several cores is a process for each, which share the port by
    /// `SO_REUSEPORT`.
    pub fn has_process_per_core(self) -> bool {
        matches!(self, Self::Kernel | Self::KernelUring)
    }

    /// True if the exchange is HTTP, with a server that is a program of its own.
    pub fn is_http(self) -> bool {
        matches!(
            self,
            Self::Nginx
                | Self::KernelServe
                | Self::MillServe
                | Self::MillServeOneLane
                | Self::MillServePacket
                | Self::MuxServe
                | Self::MuxMemifServe
        )
    }

    /// The wire of Millstream on a device that it has alone.
    pub fn wire(self, device: &str) -> String {
        match self {
            Self::XdpServerOneLane | Self::MillServeOneLane => format!("xdp:{device},bulk=off"),
            Self::MillServePacket => format!("packet:{device}"),
            _ => format!("xdp:{device}"),
        }
    }

    /// True if the server has a virtual port of `mill mux`, and the kernel's address.
    pub fn is_shared(self) -> bool {
        self.mux_path().is_some()
    }

    /// The `--path` of that service; none without a service.
    pub fn mux_path(self) -> Option<&'static str> {
        match self {
            Self::MuxServer | Self::MuxServe => Some("veth"),
            Self::MuxMemifServer | Self::MuxMemifServe => Some("memif"),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel, loopback",
            Self::KernelOne => "kernel, loopback, one listener",
            Self::KernelLooks => "kernel, loopback, looking before it sleeps",
            Self::KernelUring => "kernel, io_uring, loopback",
            Self::Inline => "Millstream, memif, inline",
            Self::InlineAlone => "Millstream, memif, inline, no aggregation, no ACK offload",
            Self::Dedicated => "Millstream, memif, dedicated",
            Self::KernelVeth => "kernel, veth",
            Self::XdpServer => "kernel client, Millstream on AF_XDP, veth",
            Self::XdpServerOneLane => "kernel client, Millstream on AF_XDP without bulk lane, veth",
            Self::XdpBoth => "Millstream on AF_XDP, veth",
            Self::Nginx => "nginx on the kernel, veth",
            Self::MillServe => "mill serve on AF_XDP, veth",
            Self::MillServeOneLane => "mill serve on AF_XDP without bulk lane, veth",
            Self::MillServePacket => "mill serve on a packet socket, veth",
            Self::MuxServer => "kernel client, Millstream on a virtual port, veth",
            Self::MuxMemifServer => "kernel client, Millstream on a virtual port by memif, veth",
            Self::KernelServe => "mill serve on the kernel, veth",
            Self::MuxServe => "mill serve on a virtual port, veth",
            Self::MuxMemifServe => "mill serve on a virtual port by memif, veth",
            Self::OneThread => "Millstream, one thread",
            Self::Smoltcp => "smoltcp, one thread",
            Self::Gvisor => "gVisor netstack, one process",
        }
    }
}

impl turns::System for System {
    fn is_ours(self) -> bool {
        !self.is_kernel() && !matches!(self, Self::Smoltcp | Self::Gvisor)
    }
}

impl fmt::Display for System {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}
