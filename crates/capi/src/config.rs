//! The configuration: read from mTCP's grammar or from TOML into one set of settings, then
//! converted to Millstream's configuration.
//!
//! A key has one meaning and one line in [`keys`], whichever grammar it is in. The first error
//! stops with file and line. One warning names the keys of mTCP that have no meaning here.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use millstream::IpCidr;

use crate::limits::{BUFFERS_DEFAULT, CONCURRENCY_DEFAULT};

mod build;
mod files;
mod further;
mod keys;
mod lines;
mod toml_file;

#[cfg(test)]
mod tests;

/// The receive buffer that `mtcp_getconf` returns until one is set, in bytes: the initial size in
/// Linux. The real buffer grows by itself.
pub const RCVBUF_DEFAULT: i32 = 131_072;
/// The send buffer that `mtcp_getconf` returns until one is set, in bytes.
pub const SNDBUF_DEFAULT: i32 = 16_384;

/// An error in the configuration, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    file: Option<PathBuf>,
    /// The line, from 1 on; 0: the file as a whole.
    line: usize,
    why: String,
}

impl Problem {
    /// A problem that does not concern a file.
    pub fn of(why: &impl fmt::Display) -> Self {
        Self {
            file: None,
            line: 0,
            why: why.to_string(),
        }
    }

    fn at(file: &Path, line: usize, why: impl Into<String>) -> Self {
        Self {
            file: Some(file.to_owned()),
            line,
            why: why.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (None, _) => write!(f, "{}", self.why),
            (Some(file), 0) => write!(f, "{}: {}", file.display(), self.why),
            (Some(file), line) => write!(f, "{}:{line}: {}", file.display(), self.why),
        }
    }
}

/// The line of a setting, for errors that are found later.
type Line = usize;

/// The driver of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    Xdp,
    /// A virtual port of `mill mux`.
    Mux,
    Memif,
    Tap,
    Packet,
    Loopback,
    Dpdk,
}

impl Io {
    /// The kind of wire.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Mux => "mux",
            Self::Memif => "memif",
            Self::Tap => "tap",
            Self::Packet => "packet",
            Self::Loopback => "loopback",
            Self::Dpdk => "dpdk",
        }
    }
}

/// Settings for DPDK only.
#[derive(Clone, Debug, Default)]
pub struct Dpdk {
    pub memory_channels: Option<(i32, Line)>,
    /// Further arguments for EAL.
    pub arguments: Option<(String, Line)>,
}

/// See the module's documentation. `None`: the setting was not made.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub file: Option<PathBuf>,
    pub io: Option<(Io, Line)>,
    pub ports: Vec<String>,
    /// The wires of the ports after the first. Filled by [`complete`](Self::complete).
    pub further: Vec<millstream::FurtherWire>,
    pub port_line: Line,
    /// A wire specification of Millstream's, which replaces `io` and `port`.
    pub wire: Option<(String, Line)>,
    pub addresses: Vec<IpCidr>,
    pub gateways: Vec<IpAddr>,
    pub on_link: Vec<IpCidr>,
    pub neighbours: Vec<(IpAddr, [u8; 6])>,
    pub num_cores: Option<i32>,
    /// The CPU of each context; empty: contexts are not bound.
    pub cores: Vec<usize>,
    /// The pages under each stack's tables and buffers.
    pub hugetlb: millstream::HugePages,
    pub max_concurrency: Option<i32>,
    pub max_num_buffers: Option<i32>,
    pub rcvbuf: Option<i32>,
    pub sndbuf: Option<i32>,
    pub tcp_timeout_s: Option<i32>,
    pub tcp_timewait_s: Option<i32>,
    pub congestion: Option<millstream::CongestionAlgorithm>,
    pub is_dedicated: bool,
    /// Time to look for work before sleeping, in µs; `None`: Millstream's default.
    pub spin_us: Option<u64>,
    /// Time until unused memory is returned, in seconds; 0: never; `None`: Millstream's default.
    pub return_memory_s: Option<i32>,
    /// One in so many new connections has its story recorded; 0: none.
    pub story_one_in: Option<i32>,
    /// Packet rules, which only a TOML file can have.
    pub rules: millstream::rules::RuleSet,
    pub dpdk: Dpdk,
    /// `stat_print`. Its interface does not matter: counters are sums over all of them.
    pub prints_statistics: bool,
    /// Keys without a meaning here, and their lines.
    pub without_meaning: Vec<(String, Line)>,
}

impl Settings {
    /// Reads a file, and the tables of routes and neighbours beside it.
    pub fn read(file: &Path) -> Result<Self, Problem> {
        let text = lines::text_of(file)?;
        let mut settings = Self {
            file: Some(file.to_owned()),
            ..Self::default()
        };
        match file.extension().is_some_and(|end| end == "toml") {
            true => toml_file::read(&mut settings, file, &text)?,
            false => lines::read(&mut settings, file, &text)?,
        }
        files::read_beside(&mut settings, file)?;
        Ok(settings)
    }

    /// One line that names all keys without a meaning here; `None`: there are none. Call it after
    /// [`complete`](Self::complete).
    pub fn warning(&self) -> Option<String> {
        let named = |(key, line): &(String, Line)| format!("{key} (line {line})");
        let named: Vec<_> = self.without_meaning.iter().map(named).collect();
        let why = format!("without meaning here: {}: see mtcp(7)", named.join(", "));
        (!named.is_empty()).then(|| self.problem(0, why).to_string())
    }

    /// The values that `mtcp_getconf` returns from now on: the file's, otherwise those of `before`.
    pub fn conf(&self, before: Conf) -> Conf {
        // As in mTCP, a buffer size that is not set is that of the other buffer, and the number of
        // buffers is that of connections.
        let (rcvbuf, sndbuf) = (self.rcvbuf.or(self.sndbuf), self.sndbuf.or(self.rcvbuf));
        let max_num_buffers = self.max_num_buffers.or(self.max_concurrency);
        let named = i32::try_from(self.cores.len())
            .ok()
            .filter(|&count| count > 0);
        Conf {
            num_cores: self.num_cores.or(named).unwrap_or(before.num_cores),
            max_concurrency: self.max_concurrency.unwrap_or(before.max_concurrency),
            max_num_buffers: max_num_buffers.unwrap_or(before.max_num_buffers),
            rcvbuf_size: rcvbuf.unwrap_or(before.rcvbuf_size),
            sndbuf_size: sndbuf.unwrap_or(before.sndbuf_size),
            tcp_timewait: self.tcp_timewait_s.unwrap_or(before.tcp_timewait),
            tcp_timeout: self.tcp_timeout_s.unwrap_or(before.tcp_timeout),
        }
    }

    /// Applies `MILLSTREAM_WIRE` and `MILLSTREAM_ADDRESS`, which override the file, so that one
    /// file serves several machines.
    pub fn with_environment(mut self) -> Result<Self, Problem> {
        if let Ok(wire) = std::env::var("MILLSTREAM_WIRE") {
            self.wire = Some((wire, 0));
        }
        for (name, key) in [
            ("MILLSTREAM_ADDRESS", "ip_addr"),
            ("MILLSTREAM_GATEWAY", "gateway"),
        ] {
            let Ok(value) = std::env::var(name) else {
                continue;
            };
            keys::set(&mut self, key, &value, 0)
                .map_err(|why| Problem::of(&format!("{name}: {why}")))?;
        }
        Ok(self)
    }

    fn problem(&self, line: Line, why: impl Into<String>) -> Problem {
        Problem {
            file: self.file.clone(),
            line,
            why: why.into(),
        }
    }
}

/// `struct mtcp_conf`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conf {
    pub num_cores: i32,
    pub max_concurrency: i32,
    pub max_num_buffers: i32,
    pub rcvbuf_size: i32,
    pub sndbuf_size: i32,
    pub tcp_timewait: i32,
    pub tcp_timeout: i32,
}

impl Conf {
    /// The default values.
    pub const fn new() -> Self {
        Self {
            num_cores: 0,
            max_concurrency: CONCURRENCY_DEFAULT,
            max_num_buffers: BUFFERS_DEFAULT,
            rcvbuf_size: RCVBUF_DEFAULT,
            sndbuf_size: SNDBUF_DEFAULT,
            tcp_timewait: 0,
            tcp_timeout: 0,
        }
    }
}
