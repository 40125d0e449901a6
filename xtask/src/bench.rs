//! `cargo xtask bench NAME`: a release build and `mill bench NAME`, which measures.

use std::path::Path;

use crate::cli::BenchOptions;
use crate::demo;
use crate::run;

/// The chore. The options behind the name go on unread.
pub fn bench(root: &Path, options: &BenchOptions) -> Result<bool, String> {
    demo::build_mill()?;
    let mut command = run::command(&demo::mill_binary(root).to_string_lossy());
    command.arg("bench").args(&options.arguments);
    run::run(&mut command)?;
    Ok(true)
}
