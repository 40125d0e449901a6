//! `mill run -- PROGRAM`: an unmodified program whose TCP sockets on the wire are Millstream's.
//!
//! Owns the command line, the search for the library and for the program, and the library's
//! settings. The library is the crate `preload`. The program replaces this process.

mod program;
mod rules;
#[cfg(test)]
mod tests;
mod workers;

use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use millstream::HugePages;
use packetio::loopback::LoopbackOptions;
use packetio::mux::MuxOptions;
use packetio::{Backend, WireSpec};

use crate::failure::Failure;
use crate::net::options::Cidr;

/// The library's file.
const LIBRARY: &str = "libmillstream_preload.so";
/// The environment variable that the library reads; `preload` knows it by the same name.
const SETTINGS: &str = "MILLSTREAM_RUN";

/// Options of `mill run`.
#[derive(Args, Clone, Debug)]
pub struct RunOptions {
    /// The wire: a virtual port of `mill mux`, or xdp:IFACE, memif:PATH, packet:IFACE; without it
    /// mux:, and with --lo none
    #[arg(long, value_name = "SPEC")]
    wire: Option<WireSpec>,
    /// Our address on the wire with the length of its subnet's prefix; on mux: the host's
    #[arg(long = "addr", value_name = "IP/PREFIX")]
    addresses: Vec<Cidr>,
    /// Where packets go that are not for our subnet. Of several, the first that answers
    #[arg(long = "gateway", value_name = "IP")]
    gateways: Vec<IpAddr>,
    /// Ports whose listeners are Millstream's, such as 80,443; without it all on the wire
    #[arg(long, value_name = "PORTS", value_parser = ports)]
    listen: Option<String>,
    /// Prefixes to which Millstream connects; without it those that the wire leads to
    #[arg(long, value_name = "PREFIXES", value_parser = prefixes)]
    connect: Option<String>,
    /// Ports and prefixes that stay with the kernel
    #[arg(long, value_name = "PORTS,PREFIXES", value_parser = ports_and_prefixes)]
    not: Option<String>,
    /// A file of such rules for single programs: lines `program NAME`, `listen PORTS`, `connect
    /// PREFIXES`, `not PORTS,PREFIXES`
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Packet rules of Millstream's stack, a TOML file (see the operating guide): who may begin
    /// something
    #[arg(long, value_name = "FILE")]
    packet_rules: Option<PathBuf>,
    /// Pages under connections, flow table and buffers: transparent (huge pages, none of them
    /// reserved) or off
    #[arg(long, value_name = "RULE", default_value = "transparent", value_parser = huge_pages)]
    hugetlb: HugePages,
    /// Connections to 127.0.0.0/8 and ::1 between sockets of one process are Millstream's, too
    #[arg(long)]
    lo: bool,
    /// Write the story of one in N new connections, for `mill ss -v`; 0: only when somebody asks
    #[arg(long, value_name = "N", default_value_t = 0)]
    story_one_in: u32,
    /// The program has several processes: they share the interface of packet: or xdp: by a service
    /// of their own, with the addresses that the interface has
    #[arg(long, conflicts_with_all = ["addresses", "gateways"])]
    workers: bool,
    /// Write the stack's counters to a file when the program ends
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, last = true)]
    program: Vec<String>,
}

impl RunOptions {
    /// The wire in the options, or the default. With `--lo` alone, a loopback without another end
    /// serves as wire.
    fn wire(&self) -> WireSpec {
        let usual = match self.lo {
            true => WireSpec::from(Backend::Loopback(LoopbackOptions::default())),
            false => WireSpec::from(Backend::Mux(MuxOptions::default())),
        };
        self.wire.clone().unwrap_or(usual)
    }
}

fn is_prefix(part: &str) -> bool {
    part.parse::<IpAddr>().is_ok() || part.parse::<Cidr>().is_ok()
}

fn list(text: &str, what: &str, fits: fn(&str) -> bool) -> Result<String, String> {
    match text.split(',').find(|part| !fits(part)) {
        None => Ok(text.to_owned()),
        Some(part) => Err(format!("`{part}` is no {what}")),
    }
}

fn huge_pages(text: &str) -> Result<HugePages, String> {
    match text.parse() {
        Ok(HugePages::Auto | HugePages::Require) => Err(
            "a program that forks may end by SIGBUS on reserved pages: transparent or off".into(),
        ),
        Ok(rule) => Ok(rule),
        Err(_) => Err("neither transparent nor off".into()),
    }
}

fn ports(text: &str) -> Result<String, String> {
    list(text, "port", |part| part.parse::<u16>().is_ok())
}

fn prefixes(text: &str) -> Result<String, String> {
    list(text, "prefix", is_prefix)
}

fn ports_and_prefixes(text: &str) -> Result<String, String> {
    list(text, "port or prefix", |part| {
        part.parse::<u16>().is_ok() || is_prefix(part)
    })
}

/// Replaces this process by the program; returns only on failure.
pub fn run(options: &RunOptions) -> Result<(), Failure> {
    let mut wire = options.wire();
    if !wire.has_host() && !options.workers && !options.lo && options.addresses.is_empty() {
        let wire = wire.kind();
        return Err(Failure::Usage(format!(
            "run: {wire} needs --addr IP/PREFIX"
        )));
    }
    let Some((name, arguments)) = options.program.split_first() else {
        return Err(Failure::Usage("run: no program".into()));
    };
    let path = program::find(name)?;
    program::check(&path)?;
    let rules = options
        .rules
        .as_deref()
        .map_or(Ok(Vec::new()), rules::read)?;
    if let Some(file) = &options.packet_rules {
        crate::net::millstream::rules("--packet-rules", file)?;
    }
    let library = library()?;
    if options.workers {
        wire = workers::share(&wire)?;
    }
    let mut command = Command::new(&path);
    command.arg0(name).args(arguments);
    command.env("LD_PRELOAD", preloads(&library));
    command.env(SETTINGS, settings(options, &wire, rules));
    let error = command.exec();
    Err(Failure::Run(format!("{}: {error}", path.display())))
}

/// The value of `LD_PRELOAD`: the library, then the user's other libraries.
fn preloads(library: &Path) -> std::ffi::OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

/// The library's settings, one per line.
fn settings(options: &RunOptions, wire: &WireSpec, rules: Vec<String>) -> String {
    let mut lines = vec![format!("wire={wire}")];
    lines.extend(options.addresses.iter().map(|cidr| format!("addr={cidr}")));
    lines.extend(options.gateways.iter().map(|ip| format!("gateway={ip}")));
    let lists = [
        ("listen", &options.listen),
        ("connect", &options.connect),
        ("not", &options.not),
    ];
    lines.extend(rules);
    for (key, value) in lists {
        lines.extend(value.iter().map(|value| format!("{key}={value}")));
    }
    lines.extend(options.lo.then(|| "lo".to_owned()));
    let story_one_in = options.story_one_in;
    lines.extend((story_one_in > 0).then(|| format!("story_one_in={story_one_in}")));
    if options.hugetlb != HugePages::Transparent {
        lines.push(format!("hugetlb={}", options.hugetlb));
    }
    let files = [
        ("packet_rules", &options.packet_rules),
        ("report", &options.report),
    ];
    for (key, file) in files {
        if let Some(Ok(path)) = file.as_ref().map(std::path::absolute) {
            lines.push(format!("{key}={}", path.display()));
        }
    }
    lines.join("\n")
}

/// Finds the library beside this program, or in an installation's directory.
fn library() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::Run(format!("run: this program's path: {error}")))?;
    let directory = own.parent().unwrap_or(Path::new("/"));
    let places = [
        directory.join(LIBRARY),
        directory.join("../lib/millstream").join(LIBRARY),
        Path::new("/usr/lib/millstream").join(LIBRARY),
        Path::new("/usr/local/lib/millstream").join(LIBRARY),
    ];
    let found = places.iter().find(|place| place.is_file());
    let found = found.and_then(|place| place.canonicalize().ok());
    found.ok_or_else(|| {
        let place = directory.display();
        Failure::Run(format!(
            "run: {LIBRARY} is neither in {place} nor in lib/millstream"
        ))
    })
}
