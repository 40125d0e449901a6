//! The chores of Millstream behind one door: `cargo xtask <chore>`.
//!
//! Owns the order of the chores and no part of the product. Called by people and by `.ci/run`.
//! Every child process is started through [`run`], so that Ctrl-C finds and ends all of them.

#![forbid(unsafe_code)]

mod bench;
mod beside;
mod chores;
mod cleanup;
mod cli;
mod conformance;
mod demo;
mod dpdk;
mod failures;
mod guided;
mod install;
mod mutants;
mod packetdrill;
mod path;
mod programs;
mod report;
mod run;
mod setup;
mod stress;
mod suite;
mod suites;
mod tidy;

use std::process::ExitCode;

use clap::Parser;
use cli::{Chore, Cli};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let root = match run::workspace_root() {
        Ok(root) => root,
        Err(cause) => return fail(&cause),
    };
    if let Err(cause) = run::watch_signals(&root) {
        return fail(&cause);
    }
    let outcome = match cli.chore {
        Chore::Demo(options) => demo::demo(&root, &options),
        Chore::Test(options) => suite::test(&root, &options),
        Chore::Ci => suite::test(&root, &cli::TestOptions::default()),
        Chore::Tidy => tidy::tidy(&root),
        Chore::Docs(options) => chores::docs(options.check).map(|()| true),
        Chore::Conformance => conformance::conformance(&root),
        Chore::Deny => chores::alone(&root, chores::deny),
        Chore::Loom => chores::alone(&root, chores::loom),
        Chore::Miri => chores::alone(&root, chores::miri),
        Chore::Fuzz(options) => chores::fuzz(&root, &options),
        Chore::Bench(options) => bench::bench(&root, &options),
        Chore::Path => path::path(&root),
        Chore::Sim(options) => chores::sim(&options.arguments).map(|()| true),
        Chore::Script(options) => chores::script(&options.arguments).map(|()| true),
        Chore::Mutants(options) => mutants::mutants(&root, &options),
        Chore::Stress(options) => stress::stress(&root, &options),
        Chore::Suites(options) => suites::suites(&root, &options),
        Chore::Packetdrill(options) => packetdrill::packetdrill(&root, &options),
        Chore::Dpdk => dpdk::dpdk(&root).map(|()| true),
        Chore::Install(options) => install::install(&root, &options).map(|()| true),
        Chore::Setup => setup::setup(&root, &setup::Need::everything()),
        Chore::Clean => cleanup::clean(),
    };
    cleanup::after_run();
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(cause) => fail(&cause),
    }
}

fn fail(cause: &str) -> ExitCode {
    eprintln!("xtask: {cause}");
    ExitCode::FAILURE
}
