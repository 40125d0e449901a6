//! Edge cases of calls in mTCP programs: runs `edges.c` with the sanitizers, as C and as C++, with
//! both cranks.

mod common;

use std::process::Command;

use common::lab::printed;

#[test]
fn edges_are_as_the_manual_says() {
    let directory = common::scratch("edges");
    for language in common::LANGUAGES {
        let program = common::sanitized("edges.c", language, &directory);
        for crank in ["inline", "dedicated"] {
            let config = directory.join("edges.conf");
            let text = format!(
                "io = loopback\nip_addr = 10.9.0.1/24\nmax_concurrency = 500\nstat_print = dpdk0\ncrank = {crank}\n"
            );
            std::fs::write(&config, text).unwrap();
            let mut command = Command::new("timeout");
            command.args(["-s", "KILL", "120"]).arg(&program);
            let output = command.arg(&config).output().unwrap();
            printed(&[language.0, crank], &output);
            let said = String::from_utf8_lossy(&output.stderr);
            let is_line = |line: &str| {
                line.starts_with("mtcp: context 1: ") && line.contains(" Mbit/s, out ")
            };
            assert!(said.lines().any(is_line), "{said}");
        }
    }
}
