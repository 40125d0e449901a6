//! The error of opening a port, which every driver returns and [`crate::open()`] passes on.

use std::fmt::{self, Display};

use rustix::io::Errno;

/// The reason why a port could not be opened: one line that names cause and place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// A system call failed.
    #[error("{wire}: {step}: {errno}{}", hint(.wire, *.errno))]
    Io {
        /// The wire as the user named it, or a short form of it: `tap:mill0`.
        wire: String,
        /// The step that failed: `TUNSETIFF`, `bind`.
        step: String,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The request is valid but cannot be met: out of range, not supported here, in use.
    #[error("{wire}: {why}")]
    Refused {
        /// The wire as the user named it, or a short form of it.
        wire: String,
        /// The reason, in one line.
        why: String,
        /// The check of `mill doctor` that finds the same cause.
        check: Option<Check>,
    },
}

/// A check of the host (`mill doctor`) that explains why a wire does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Capabilities of the process.
    Capabilities,
    /// The interface exists and is up.
    Interface,
    /// The interface's XDP program and mode.
    Xdp,
    /// The interface's queues.
    Queues,
    /// Memory that the process may lock.
    Memlock,
    /// The kernel's TUN/TAP device.
    Tun,
    /// The service of a `mux` wire.
    Service,
    /// The path of a `memif` wire's socket.
    Memif,
    /// The DPDK plug-in.
    Plugin,
}

/// The remedy for a wire that does not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// The check of `mill doctor` that finds the same cause.
    pub check: Check,
    /// The command that helps, or what to examine.
    pub fix: String,
}

impl OpenError {
    /// Makes the error of a system call that failed at `step`.
    pub fn io(wire: impl Display, step: impl Into<String>, errno: Errno) -> Self {
        Self::Io {
            wire: wire.to_string(),
            step: step.into(),
            errno,
        }
    }

    /// Makes the error of a request that cannot be met.
    pub fn refused(wire: impl Display, why: impl Into<String>) -> Self {
        Self::Refused {
            wire: wire.to_string(),
            why: why.into(),
            check: None,
        }
    }

    /// Makes the error of a request that cannot be met for a cause that `check` finds.
    pub fn refused_by(check: Check, wire: impl Display, why: impl Into<String>) -> Self {
        Self::Refused {
            wire: wire.to_string(),
            why: why.into(),
            check: Some(check),
        }
    }

    /// The remedy that `mill doctor` would name, if there is one.
    #[must_use]
    pub fn remedy(&self) -> Option<Remedy> {
        let (wire, check) = match self {
            Self::Refused { wire, check, .. } => (wire, (*check)?),
            Self::Io { wire, step, errno } => (wire, check_of(wire, step, *errno)?),
        };
        let interface = wire.split_once(':').map_or(wire.as_str(), |(_, rest)| rest);
        let interface = interface.split(',').next().unwrap_or(interface);
        Some(Remedy {
            check,
            fix: check.fix(interface),
        })
    }
}

impl Check {
    /// The name of the check in `mill doctor`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Capabilities => "capabilities",
            Self::Interface => "interface",
            Self::Xdp => "xdp",
            Self::Queues => "queues",
            Self::Memlock => "memlock",
            Self::Tun => "tun",
            Self::Service => "service",
            Self::Memif => "memif",
            Self::Plugin => "plug-in",
        }
    }

    /// The command that helps, for `interface`.
    #[must_use]
    pub fn fix(self, interface: &str) -> String {
        match self {
            Self::Capabilities => {
                "run as root, or `sudo setcap cap_net_admin,cap_net_raw,cap_bpf,cap_perfmon+ep PROGRAM`"
                    .into()
            }
            Self::Interface => {
                format!("`ip link show dev {interface}` in this namespace: is it there, and up?")
            }
            // A program that a link holds goes with the process that has the link.
            Self::Xdp => format!(
                "`mill doctor --wire xdp:{interface}` names the process that holds the program"
            ),
            Self::Queues => format!("`ss --xdp -p` shows who holds queues of {interface}"),
            Self::Memlock => "`ulimit -l unlimited`, or LimitMEMLOCK=infinity in the unit".into(),
            Self::Tun => "`modprobe tun`; for a container also `--device /dev/net/tun`".into(),
            Self::Service => {
                "as root, `mill mux IFACE` on this host serves all users, at `--socket`".into()
            }
            Self::Memif => {
                format!("`mill doctor --wire memif:{interface}` says what is wrong with the path")
            }
            Self::Plugin => {
                "`cargo xtask dpdk` builds the plug-in; MILLSTREAM_DPDK=FILE or plugin=FILE names it"
                    .into()
            }
        }
    }
}

impl Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "doctor: {}: {}", self.check.name(), self.fix)
    }
}

/// The check that explains a failed step, if there is one.
fn check_of(wire: &str, step: &str, errno: Errno) -> Option<Check> {
    match errno {
        Errno::PERM | Errno::ACCESS | Errno::NOENT | Errno::CONNREFUSED
            if wire.starts_with("mux:") =>
        {
            Some(Check::Service)
        }
        Errno::PERM | Errno::ACCESS | Errno::NOENT | Errno::NOTDIR | Errno::ADDRINUSE
            if wire.starts_with("memif:") =>
        {
            Some(Check::Memif)
        }
        Errno::PERM | Errno::ACCESS => Some(Check::Capabilities),
        Errno::NODEV | Errno::NXIO | Errno::NETDOWN => Some(Check::Interface),
        Errno::NOENT if step.ends_with("/dev/net/tun") => Some(Check::Tun),
        Errno::BUSY if wire.starts_with("xdp:") => Some(Check::Queues),
        Errno::NOBUFS | Errno::NOMEM if wire.starts_with("xdp:") => Some(Check::Memlock),
        _ => None,
    }
}

/// The usual remedy for an errno.
fn hint(wire: &str, errno: Errno) -> &'static str {
    match errno {
        // These wires are sockets of files: their rights decide.
        _ if wire.starts_with("mux:") || wire.starts_with("memif:") => "",
        Errno::PERM | Errno::ACCESS => " (needs root or CAP_NET_ADMIN and CAP_NET_RAW)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(error: &OpenError) -> Option<String> {
        error.remedy().map(|remedy| remedy.to_string())
    }

    #[test]
    fn wire_that_fails_to_open_names_the_check_and_the_command() {
        let denied = OpenError::io("xdp:eth0", "BPF_MAP_CREATE", Errno::PERM);
        assert!(line(&denied).is_some_and(|line| line.starts_with("doctor: capabilities: run as")));
        let absent = OpenError::io(
            "packet:eth7,mac=02:00:00:00:00:01",
            "SIOCGIFINDEX",
            Errno::NODEV,
        );
        let expected = "doctor: interface: `ip link show dev eth7` in this namespace: is it there, \
            and up?";
        assert_eq!(line(&absent).as_deref(), Some(expected));
        let closed = OpenError::io("mux:", "connect", Errno::ACCESS);
        assert!(line(&closed).is_some_and(|line| line.starts_with("doctor: service: ")));
        assert!(!closed.to_string().contains("CAP_NET"), "{closed}");
        let down = OpenError::io("xdp:eth0", "bind", Errno::NETDOWN);
        assert!(line(&down).is_some_and(|line| line.starts_with("doctor: interface: ")));
        let denied = OpenError::io("memif:/run/x,role=server", "listen", Errno::ACCESS);
        let expected = "doctor: memif: `mill doctor --wire memif:/run/x` says what is wrong with \
            the path";
        assert_eq!(line(&denied).as_deref(), Some(expected));
        let absent = OpenError::refused_by(Check::Plugin, "dpdk:0", "no plug-in");
        assert!(line(&absent).is_some_and(|line| line.starts_with("doctor: plug-in: `cargo")));
        let taken = OpenError::refused_by(Check::Xdp, "xdp:eth0", "another program");
        let expected = "doctor: xdp: `mill doctor --wire xdp:eth0` names the process that holds \
            the program";
        assert_eq!(line(&taken).as_deref(), Some(expected));
    }

    #[test]
    fn wire_that_fails_for_a_reason_of_its_own_has_no_remedy() {
        assert_eq!(
            line(&OpenError::refused("memif:/run/x", "queue 3 of 2")),
            None
        );
        assert_eq!(
            line(&OpenError::io("tap:t0", "TUNSETIFF", Errno::BUSY)),
            None
        );
    }
}
