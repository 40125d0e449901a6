//! `mill demo`: Millstream serves real HTTP clients across a veth pair, and is then measured
//! against the kernel.
//!
//! ```text
//!   namespace mst-<pid>-client          namespace mst-<pid>-server
//!   kernel's stack, curl, wrk, ab ─veth─ mill serve, AF_XDP, 10.77.0.2
//! ```
//!
//! [`world`] makes everything that the demo needs on the machine and removes it, even after Ctrl-C.
//! [`steps`] runs the demo's steps and checks their results. [`compare`] is the last step.
//! [`report`] prints the results.

mod compare;
mod report;
mod steps;
mod world;

use std::path::PathBuf;

use clap::Args;

use self::report::Report;
use self::world::World;
use crate::failure::Failure;

/// Options of `mill demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoOptions {
    /// Shorter loads: all of it in under a minute
    #[arg(long)]
    pub quick: bool,
    /// Write what was seen to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Runs every step, even after one has failed. Succeeds only if all steps do.
pub fn demo(options: &DemoOptions) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        let cause = "the demo makes network namespaces and AF_XDP sockets, which takes root";
        return Err(Failure::Usage(cause.to_owned()));
    }
    let world = World::new().map_err(Failure::Run)?;
    let mut report = Report::new(options.quick);
    for (name, step) in steps::STEPS {
        report.step(name, || step(&world, options.quick));
    }
    drop(world);
    if let Some(path) = &options.json {
        report
            .write_json(path)
            .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
    }
    if report.finish() {
        Ok(())
    } else {
        Err(Failure::Reported)
    }
}
