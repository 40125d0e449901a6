//! Kernel sockets in a context: runs `attached.c`, with the sanitizers.

mod common;

use std::process::Command;

use common::With;
use common::lab::printed;

#[test]
fn sockets_of_the_kernel_keep_their_ways() {
    let directory = common::scratch("attached");
    let source = common::crate_directory().join("tests/attached.c");
    let program = directory.join("attached");
    common::compile("gcc", &[source], &common::SANITIZE, With::Libmtcp, &program);
    let config = directory.join("mtcp.conf");
    std::fs::write(&config, "io = loopback\nnum_cores = 1\n").unwrap();
    let words = ["60", program.to_str().unwrap(), config.to_str().unwrap()];
    let output = Command::new("timeout").args(words).output().unwrap();
    printed(&words, &output);
}
