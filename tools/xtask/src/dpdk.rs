//! `cargo xtask dpdk`: builds the DPDK plug-in against this machine's DPDK. No other build of
//! Millstream needs DPDK.

use std::path::{Path, PathBuf};

use crate::run;

/// File name of the plug-in.
pub const FILE: &str = "libmillstream_dpdk.so";

/// Builds the plug-in where `mill` of the release build looks for it.
pub fn dpdk(root: &Path) -> Result<(), String> {
    let directory = run::target(root).join("release/millstream");
    println!("{}", build(root, &directory)?.display());
    Ok(())
}

/// Builds the plug-in in `directory`, and returns its path.
pub fn build(root: &Path, directory: &Path) -> Result<PathBuf, String> {
    let script = root.join("plugins/dpdk/build.sh");
    run::run(run::command(&script.to_string_lossy()).arg(directory))?;
    Ok(directory.join(FILE))
}

/// Whether there is a DPDK to build against.
pub fn is_possible() -> bool {
    run::output(run::command("pkg-config").args(["--exists", "libdpdk"])).is_ok()
}
