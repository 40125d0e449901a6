//! `mill`: the millstream command. Owns the command line; each command is a module.

#![forbid(unsafe_code)]

mod bench;
mod cli;
mod demo;
mod failure;
mod get;
mod http;
mod limits;
mod net;
mod script;
mod serve;
mod stop;
mod wire;

use std::process::ExitCode;

fn main() -> ExitCode {
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
        cli::Command::Bench(options) => bench::bench(options),
        cli::Command::Script(options) => script::script(options, cli.verbose > 0),
        cli::Command::Demo(options) => demo::demo(options),
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
