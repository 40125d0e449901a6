//! `cargo xtask dpdk`: the DPDK plug-in, against the DPDK that this machine has. Nothing else of
//! Millstream needs DPDK to be built.

use std::path::{Path, PathBuf};

use crate::run;

/// The plug-in's file.
pub const FILE: &str = "libmillstream_dpdk.so";

/// Builds it where `mill` of the release build finds it.
pub fn dpdk(root: &Path) -> Result<(), String> {
    let directory = run::target(root).join("release/millstream");
    println!("{}", build(root, &directory)?.display());
    Ok(())
}

/// Builds it into `directory`; its path.
pub fn build(root: &Path, directory: &Path) -> Result<PathBuf, String> {
    let script = root.join("plugins/dpdk/build.sh");
    run::run(run::command(&script.to_string_lossy()).arg(directory))?;
    Ok(directory.join(FILE))
}

/// Whether there is a DPDK to build it against.
pub fn is_possible() -> bool {
    run::output(run::command("pkg-config").args(["--exists", "libdpdk"])).is_ok()
}
