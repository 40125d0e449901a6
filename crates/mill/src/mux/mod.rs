//! `mill mux`: shares a NIC among many user-level stacks and the kernel, and queries a running
//! service.
//!
//! Owns the options. The service is the crate `mux`. `ask` queries a running one; `private`
//! concerns a service for one program.

mod ask;
mod private;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ::mux::capabilities::drop_those_of_the_start;
use ::mux::dataplane::{Dataplane, DataplaneOptions};
use ::mux::limits::{LEASE_BLOCK_PORTS, SLOTS_MAX, memory_per_user};
use ::mux::notify::notify;
use ::mux::policy::{Rule, parse_ports};
use ::mux::{Service, ServiceOptions};
use clap::{Args, Subcommand, ValueEnum};
use packetio::mux::SOCKET_PATH_DEFAULT;
use packetio::mux::message::Query;
use packetio::xdp::XdpMode;

use crate::failure::Failure;
use crate::output::print;
use crate::stop::Stop;

pub(crate) use self::ask::fetch;

/// Directory of services' namespaces, pins and notes.
const RUN_DIRECTORY: &str = "/run/millstream";

/// Options of `mill mux`.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct MuxOptions {
    /// The NIC to share
    #[arg(value_name = "IFACE", required = true)]
    interface: Option<String>,
    #[command(flatten)]
    service: ServiceArguments,
    #[command(subcommand)]
    question: Option<Question>,
}

/// The options of a service.
#[derive(Args, Clone, Debug)]
struct ServiceArguments {
    /// Where applications connect; @NAME is an abstract address
    #[arg(long, value_name = "PATH", default_value = SOCKET_PATH_DEFAULT)]
    socket: String,
    /// Users and groups that may claim ports below ip_unprivileged_port_start, such as
    /// uid=1000:80,443 or group=web:80
    #[arg(long, value_name = "WHO:PORTS")]
    allow: Vec<Rule>,
    /// Local ports that are leased to applications which connect
    #[arg(long, value_name = "FIRST-LAST", default_value = "20000-31999")]
    leases: PortRange,
    /// Virtual ports at most; each context of an application takes one
    #[arg(long, value_name = "N", default_value_t = SLOTS_MAX, value_parser = clap::value_parser!(u16).range(1..=i64::from(SLOTS_MAX)))]
    ports: u16,
    /// Bits a second that each context may send (100mbit), as many as it likes without this
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// How frames reach applications
    #[arg(long, value_enum, default_value_t = DataPath::Auto)]
    path: DataPath,
    /// Whether large packets may leave by a lane of their own that the NIC cuts into segments
    #[arg(long, value_enum, default_value_t = Bulk::Auto)]
    bulk: Bulk,
    /// Let programs of this host reach applications at the NIC's addresses, and applications the
    /// servers of this host
    #[arg(long)]
    local: bool,
    /// How the NIC's frames are had: in its driver, or in the kernel's stack where the driver
    /// cannot
    #[arg(long, value_enum, default_value_t = Mode::Auto)]
    mode: Mode,
    /// End when this process and all applications are gone (`mill run --workers`)
    #[arg(long, hide = true, value_name = "PID")]
    only_for: Option<i32>,
    /// The process that `--only-for` has started and let go
    #[arg(long, hide = true)]
    detached: bool,
}

/// `--path`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DataPath {
    /// The best one for the NIC
    Auto,
    /// Pairs of virtual interfaces with the checks in the kernel
    Veth,
    /// Shared memory with the checks in the service
    Memif,
}

/// `--bulk`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Bulk {
    /// Applications that want a lane have one where the kernel can
    Auto,
    /// All packets leave by the virtual ports
    Off,
}

/// `--mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    Auto,
    Native,
    Generic,
}

/// A range of ports on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PortRange(RangeInclusive<u16>);

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = parse_ports(text);
        let range = range.ok_or_else(|| format!("`{text}` is not like 20000-31999"))?;
        if range.len() < usize::from(LEASE_BLOCK_PORTS) {
            return Err(format!("fewer than {LEASE_BLOCK_PORTS} ports"));
        }
        Ok(Self(range))
    }
}

/// A query to a running service.
#[derive(Subcommand, Clone, Debug)]
enum Question {
    /// Show applications with their ports, contexts, packets and drops
    Status(QuestionArguments),
    /// Show every claimed port and every lease
    Ports(QuestionArguments),
    /// Show what was dropped and why
    Drops(QuestionArguments),
    /// Test every hop of the data path
    Check(QuestionArguments),
    /// End the service and remove all that it built
    Stop(QuestionArguments),
}

#[derive(Args, Clone, Debug)]
struct QuestionArguments {
    /// Where the service listens
    #[arg(long, value_name = "PATH", default_value = SOCKET_PATH_DEFAULT)]
    socket: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the service until SIGINT, SIGTERM or `mill mux stop`, or queries one.
pub fn mux(options: &MuxOptions) -> Result<(), Failure> {
    match (&options.question, &options.interface) {
        (Some(question), _) => {
            let (query, arguments) = match question {
                Question::Status(arguments) => (Query::Status, arguments),
                Question::Ports(arguments) => (Query::Ports, arguments),
                Question::Drops(arguments) => (Query::Drops, arguments),
                Question::Check(arguments) => (Query::Check, arguments),
                Question::Stop(arguments) => (Query::Stop, arguments),
            };
            ask::ask(&arguments.socket, query, arguments.json)
        }
        (None, Some(interface)) => run(interface, &options.service),
        (None, None) => Err(Failure::Usage("mux: no interface".into())),
    }
}

fn run(interface: &str, arguments: &ServiceArguments) -> Result<(), Failure> {
    if arguments.only_for.is_some() && !arguments.detached {
        return private::detach();
    }
    let rate_bytes = match &arguments.rate {
        Some(text) => bytes_a_second(text)?,
        None => 0,
    };
    let run_dir: PathBuf = Path::new(RUN_DIRECTORY).join(interface);
    let stop = Stop::on_signals().map_err(|error| Failure::Run(format!("signals: {error}")))?;
    let plane = Dataplane::open(DataplaneOptions {
        interface: interface.to_owned(),
        run_dir: run_dir.clone(),
        mode: match arguments.mode {
            Mode::Auto => XdpMode::Auto,
            Mode::Native => XdpMode::Native,
            Mode::Generic => XdpMode::Generic,
        },
        rate_bytes,
        is_local: arguments.local,
        path: match arguments.path {
            DataPath::Auto => ::mux::dataplane::DataPath::Auto,
            DataPath::Veth => ::mux::dataplane::DataPath::Veth,
            DataPath::Memif => ::mux::dataplane::DataPath::Memif,
        },
        has_bulk: arguments.bulk == Bulk::Auto,
    })
    .map_err(|error| Failure::Run(error.to_string()))?;
    let mode = ::mux::plane::Plane::mode(&plane);
    let options = ServiceOptions {
        interface: interface.to_owned(),
        socket: arguments.socket.clone(),
        run_dir,
        rules: arguments.allow.clone(),
        leases: arguments.leases.0.clone(),
        ports: arguments.ports,
        memory_per_user: memory_per_user(),
    };
    let say = |line: &str| eprintln!("mill: {line}");
    // Nothing of what applications send would arrive, and no counter would tell.
    if plane.nic().is_up
        && let Err(cause) = plane.check_peer()
    {
        say(&format!("{interface}: {cause}"));
    }
    let service =
        Service::new(options, plane, say).map_err(|error| Failure::Run(error.to_string()))?;
    match arguments.only_for {
        // No command ends this service, so it has to unmount by itself.
        Some(pid) => private::end_after(pid, arguments.socket.clone())?,
        None => drop_those_of_the_start()
            .map_err(|errno| Failure::Run(format!("capabilities: {errno}")))?,
    }
    // The service serves, whether or not somebody reads this.
    let _ = print(&format!(
        "{interface} is shared at {} ({mode})\n",
        arguments.socket
    ));
    if arguments.only_for.is_some() {
        private::go_silent();
    }
    notify("READY=1");
    let outcome = service.run(stop.fd());
    notify("STOPPING=1");
    outcome.map_err(|error| Failure::Run(error.to_string()))
}

/// A rate in the format of `mill wire --rate`, in bytes per second.
fn bytes_a_second(text: &str) -> Result<u64, Failure> {
    let mut line = packetio::fault::LineOptions::default();
    packetio::spec::set_line_key(&mut line, "rate", text)
        .map_err(|expected| Failure::Usage(format!("--rate {text}: {expected}")))?;
    Ok(line.rate_bits / 8)
}
