//! The promises that mTCP programs rely on: a server and a client in their style, with a
//! configuration in theirs, over shared memory. The sources in `classic/` say what is tested; they
//! are built with the sanitizers.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use common::With;
use common::lab::{Running, printed};
use rustix::process::Signal;

/// A configuration like those of mTCP's samples: comments, keys for other machines, the number of
/// cores left to the program, tables of routes and neighbours beside it.
fn configuration(directory: &Path, role: &str, addresses: &str) {
    let text = format!(
        "# The underlying I/O module\n\
         io = memif\n\
         # Number of memory channels per processor socket (dpdk-only)\n\
         num_mem_ch = 4\n\
         #core_mask = 000F\n\
         cc = cubic\n\
         port = wire.sock,role={role},queues=2\n\
         ip_addr = {addresses}\n\
         \n\
         max_concurrency = 1000\n\
         max_num_buffers = 1000\n\
         rcvbuf = 8192\n\
         sndbuf = 8192\n\
         tcp_timeout = 30\n\
         tcp_timewait = 0\n\
         stat_print = dpdk0\n"
    );
    let home = directory.join(role);
    fs::create_dir_all(home.join("config")).unwrap();
    fs::write(home.join("mtcp.conf"), text).unwrap();
    let routes = "# destination interface\nROUTES 1\n10.81.0.0/24 dpdk0\n";
    fs::write(home.join("config/route.conf"), routes).unwrap();
    fs::write(home.join("config/arp.conf"), "ARP_ENTRY 0\n").unwrap();
}

#[test]
fn programs_in_the_manner_of_mtcp_find_what_they_rely_on() {
    let directory = common::scratch("classic");
    let sources = common::files(&common::crate_directory().join("tests/classic"), "c");
    let program = directory.join("classic");
    common::compile("gcc", &sources, &common::SANITIZE, With::Libmtcp, &program);
    configuration(&directory, "server", "10.81.0.1/24");
    configuration(
        &directory,
        "client",
        "10.81.0.2/24 10.81.0.3/24 10.81.0.4/24",
    );
    let command = |what: &str, role: &str| {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "120"]).arg(&program);
        command.args([what, &format!("{role}/mtcp.conf")]);
        command.current_dir(&directory).stdout(Stdio::piped());
        command
    };
    let mut command_of_server = Command::new(&program);
    command_of_server.args(["serve", "server/mtcp.conf"]);
    command_of_server
        .current_dir(&directory)
        .stdout(Stdio::piped());
    let mut server = Running::start(&mut command_of_server);
    for _ in 0..2 {
        assert_eq!(server.first_line(), "ready");
    }
    let output = command("load", "client").output().unwrap();
    printed(&["the client"], &output);
    // The main thread waits for its workers, and these for events, without a time limit.
    server.signal(Signal::INT);
    assert_eq!(printed(&["the server"], &server.wait()), "done\n");
}
