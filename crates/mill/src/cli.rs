//! The command line: the commands' names, and errors of usage in one line with status 2.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::capture::CaptureOptions;
use crate::demo::DemoOptions;
use crate::doctor::DoctorOptions;
use crate::get::GetOptions;
use crate::metrics::MetricsOptions;
use crate::mux::MuxOptions;
use crate::rules::RulesOptions;
use crate::run::RunOptions;
use crate::serve::ServeOptions;
use crate::ss::{SsOptions, TraceOptions};
use crate::top::TopOptions;
use crate::wire::WireOptions;

/// Millstream: a user-level TCP stack, its server and its tools.
#[derive(Parser, Debug)]
#[command(name = "mill", version, disable_help_subcommand = true)]
pub struct Cli {
    /// Say more on stderr; twice for everything. RUST_LOG says it in detail
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Serve a directory over HTTP/1.1
    Serve(Box<ServeOptions>),
    /// Download a URL, or put a load on a server
    Get(Box<GetOptions>),
    /// Join two wires through a bad one: loss, delay, rate, by seed
    Wire(Box<WireOptions>),
    /// Serve real HTTP clients across a veth pair, and compare with the kernel; as root
    Demo(DemoOptions),
    /// Share a NIC among many user-level stacks and the kernel; as root
    Mux(Box<MuxOptions>),
    /// Run an unmodified program: its TCP sockets on the wire are Millstream's
    Run(Box<RunOptions>),
    /// Look whether this host can run Millstream well, and say what mends it
    Doctor(DoctorOptions),
    /// Show connections and listeners of running processes, as iproute2's ss does
    #[command(version)]
    Ss(Box<SsOptions>),
    /// Follow what happens to a connection of a running process
    Trace(TraceOptions),
    /// Show what the stacks of all Millstream processes do, live
    Top(TopOptions),
    /// Show what packet rules of running processes have counted
    Rules(RulesOptions),
    /// Capture the frames of running processes as pcapng
    Capture(Box<CaptureOptions>),
    /// Hand the values of all Millstream processes to Prometheus
    Metrics(MetricsOptions),
}

/// Parses the command line. Prints help and version; prints errors in one line, with status 2.
pub fn parse() -> Result<Cli, ExitCode> {
    Cli::try_parse().map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let missing = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
            // An error is ignored: stdout is closed.
            let _ = error.print();
            if missing {
                ExitCode::from(2)
            } else {
                ExitCode::SUCCESS
            }
        }
        _ => {
            eprintln!("mill: {}", one_line(&error.to_string()));
            ExitCode::from(2)
        }
    })
}

/// The first paragraph of clap's message, which says what is wrong. Usage and hints follow it.
fn one_line(message: &str) -> String {
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let paragraph = message.split("\n\n").next().unwrap_or(message);
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    words.join(" ")
}

/// Sends log lines to stderr: warnings, and more on request. Only a terminal gets colours.
pub fn start_log(verbose: u8) {
    let default = match verbose {
        0 => "warn",
        1 => "info",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn complaint(line: &str) -> String {
        let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        one_line(&error.to_string())
    }

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn wrong_option_is_one_line_that_says_what_and_where() {
        let serve = "mill serve /tmp --wire tap:t0 --addr";
        assert_eq!(
            complaint(&format!("{serve} 10.0.0/8")),
            "invalid value '10.0.0/8' for '--addr <IP/PREFIX[@N]>': `10.0.0` is no IPv4 or IPv6 address"
        );
        assert_eq!(
            complaint(&format!("{serve} 10.0.0.2/24 --bogus")),
            "unexpected argument '--bogus' found"
        );
        assert!(complaint("mill serve /tmp --wire carrier:pigeon").contains("pigeon"));
        assert_eq!(
            complaint("mill serve /tmp"),
            "the following required arguments were not provided: --wire <SPEC>"
        );
        assert!(
            complaint("mill get ftp://x --wire kernel").contains("does not begin with http://")
        );
        assert_eq!(complaint("mill fly"), "unrecognized subcommand 'fly'");
    }
}
