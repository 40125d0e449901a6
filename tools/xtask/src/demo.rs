//! `cargo xtask demo`: set-up, a release build, and `mill demo`.

use std::path::Path;

use crate::cli::DemoOptions;
use crate::run;
use crate::setup::{self, Need};

/// Path of the release build of `mill`.
pub fn mill_binary(root: &Path) -> std::path::PathBuf {
    run::target(root).join("release/mill")
}

/// Builds `mill` for release.
pub fn build_mill() -> Result<(), String> {
    run::run(run::cargo().args(["build", "--release", "--package", "mill"]))
}

/// The chore.
pub fn demo(root: &Path, options: &DemoOptions) -> Result<bool, String> {
    must_be_root("the demo")?;
    if !options.no_build {
        let need = Need {
            demo: true,
            ..Need::default()
        };
        setup::setup(root, &need)?;
        build_mill()?;
    }
    let mut command = run::command(&mill_binary(root).to_string_lossy());
    command.arg("demo");
    if options.quick {
        command.arg("--quick");
    }
    if let Some(path) = &options.json {
        command.arg("--json").arg(path);
    }
    run::run(&mut command)?;
    Ok(true)
}

/// An error unless this is root, whom namespaces, veth pairs and AF_XDP need.
pub fn must_be_root(what: &str) -> Result<(), String> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(format!(
        "{what} makes network namespaces and AF_XDP sockets, which takes root; \
         run it as root: sudo -E env \"PATH=$PATH\" cargo xtask ..."
    ))
}
