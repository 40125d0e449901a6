//! The `mill` command as a library, which its program calls and the benchmarks share.
//!
//! Owns the choice of the command; each command is a module. Parts that the benchmarks use are
//! public: the transport under `serve` and `get` ([`net`]), failures ([`failure`]), limits, CPU
//! time, the server and the bad wire.

#![forbid(unsafe_code)]

mod capture;
mod cli;
pub mod cpu;
mod demo;
mod doctor;
pub mod failure;
mod get;
mod http;
pub mod limits;
mod metrics;
pub mod mux;
pub mod net;
mod output;
mod processes;
mod rules;
mod run;
pub mod serve;
mod ss;
mod stop;
mod top;
pub mod wire;

use std::process::ExitCode;

/// Reads the command line and runs the command. Returns status 2 for an impossible request, 1 for a
/// failure.
pub fn run() -> ExitCode {
    let cli = match cli::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    cli::start_log(cli.verbose);
    ::millstream::on_notice(|line| eprintln!("mill: {line}"));
    let outcome = match &cli.command {
        cli::Command::Serve(options) => serve::serve(options),
        cli::Command::Get(options) => get::get(options),
        cli::Command::Wire(options) => wire::wire(options),
        cli::Command::Demo(options) => demo::demo(options),
        cli::Command::Mux(options) => mux::mux(options),
        cli::Command::Run(options) => run::run(options),
        cli::Command::Ss(options) => ss::ss(options, cli.verbose > 0),
        cli::Command::Trace(options) => ss::trace(options),
        cli::Command::Top(options) => top::top(options),
        cli::Command::Capture(options) => capture::capture(options),
        cli::Command::Rules(options) => rules::rules(options),
        cli::Command::Metrics(options) => metrics::metrics(options),
        cli::Command::Doctor(options) => doctor::doctor(options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let line = failure.to_string();
            if !line.is_empty() {
                eprintln!("mill: {line}");
            }
            failure.exit_code()
        }
    }
}
