//! The control plane, call by call: runs `control.c` with the sanitizers, as C and as C++, and with
//! each way to name a configuration.

mod common;

use std::process::Command;

use common::lab::printed;

#[test]
fn control_plane_keeps_its_promises() {
    let directory = common::scratch("control");
    let config = directory.join("mtcp.conf");
    std::fs::write(&config, "io = loopback\nmax_concurrency = 500\n").unwrap();
    for language in common::LANGUAGES {
        let program = common::sanitized("control.c", language, &directory);
        let run = |file: Option<&str>, environment: Option<&str>| {
            let mut command = Command::new("timeout");
            command.arg("60").arg(&program).args(file);
            command.env_remove("MILLSTREAM_CONFIG");
            command.envs(environment.map(|value| ("MILLSTREAM_CONFIG", value)));
            printed(&[language.0], &command.output().unwrap());
        };
        let file = config.to_str();
        run(file, None);
        run(None, file);
        run(None, None);
    }
}
