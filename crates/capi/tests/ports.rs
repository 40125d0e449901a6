//! Programs in the style of mTCP's users: a web server, a load generator, an echo service in C++.
//! They are built with the flags of such a project's Makefile and run under load with several
//! cores: against each other over memif, and against curl, wrk, ab and the kernel over AF_XDP on a
//! veth pair.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::lab::{Lab, OURS, Running, printed};
use rustix::process::Signal;

/// A Makefile's flags for C and for C++.
const C: &str = "gcc -g -O3 -m64 -Wall -Werror -fgnu89-inline -D_GNU_SOURCE";
const CXX: &str = "g++ -std=c++11 -O2 -Wall -Wextra -Werror";
/// The libraries that follow `-lmtcp` in the Makefile.
const LIBRARIES: [&str; 4] = ["-lpthread", "-lrt", "-ldl", "-lm"];

fn build(directory: &Path, source: &str) -> PathBuf {
    let (name, language) = source.split_once('.').unwrap();
    let program = directory.join(name);
    let words = if language == "cc" { CXX } else { C };
    let mut words = words.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    if std::env::var_os("CAPI_LIBRARY").is_some() {
        command.args(common::SANITIZE);
    }
    let own = common::crate_directory();
    command.arg("-I").arg(own.join("include"));
    command.arg(own.join("tests/ports").join(source));
    command.args(common::libmtcp()).args(LIBRARIES);
    let output = command.arg("-o").arg(&program).output().unwrap();
    printed(&[source], &output);
    program
}

/// A configuration as mTCP's programs have it, except for the wire.
fn configuration(directory: &Path, name: &str, wire: &str, address: &str) {
    let text = format!(
        "# I/O module\n{wire}\nip_addr = {address}\nnum_mem_ch = 4\nrcvbuf = 8192\nsndbuf = 8192\ntcp_timeout = 30\ntcp_timewait = 0\nstat_print = dpdk0\n"
    );
    fs::write(directory.join(name), text).unwrap();
}

/// Writes configurations for both ends of a memif with `queues` queues.
fn memif(directory: &Path, queues: u32) {
    for (role, address) in [("server", 1), ("client", 2)] {
        let wire = format!("io = memif\nport = wire.sock,role={role},queues={queues}");
        let address = format!("10.83.0.{address}/24");
        configuration(directory, &format!("{role}.conf"), &wire, &address);
    }
}

fn start(command: &mut Command, words: &str, lines: usize) -> Running {
    command.args(words.split(' ')).stdout(Stdio::piped());
    let mut running = Running::start(command);
    for _ in 0..lines {
        let line = running.first_line();
        assert!(line.contains("ready"), "{words}: \"{line}\"");
    }
    running
}

fn run(program: &Path, words: &str) -> String {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "200"]).arg(program);
    command.args(words.split(' '));
    let output = command.current_dir(program.parent().unwrap()).output();
    let said = printed(&[words], &output.unwrap());
    println!("{words}: {said}");
    said
}

/// Ends a program by SIGINT; returns its output.
fn end(running: Running) -> String {
    running.signal(Signal::INT);
    let said = printed(&["the server"], &running.wait());
    println!("{said}");
    said
}

#[test]
fn server_and_load_generator_meet_over_memif() {
    let directory = common::scratch("ports-memif");
    memif(&directory, 4);
    let (server, client) = (
        build(&directory, "docserver.c"),
        build(&directory, "puller.c"),
    );
    let mut command = Command::new(server);
    command.current_dir(&directory);
    let server = start(&mut command, "-f server.conf -N 4", 4);
    let asked = run(
        &client,
        "-f client.conf -N 4 -c 1000 -n 2000 -b 3000 10.83.0.1",
    );
    assert!(asked.contains("finished 8000 failed 0 bytes 24000000 "));
    // More bytes than a buffer holds, so each document is written in many parts.
    let asked = run(
        &client,
        "-f client.conf -N 4 -c 100 -n 100 -b 300000 10.83.0.1",
    );
    assert!(asked.contains("finished 400 failed 0 bytes 120000000 "));
    let said = end(server);
    assert!(said.contains("\naccepts 8400 answers 8400 bytes 144000000 errors 0\n"));
}

#[test]
fn objects_of_cxx_echo_over_memif() {
    let directory = common::scratch("ports-cxx");
    memif(&directory, 3);
    let program = build(&directory, "echoer.cc");
    let mut command = Command::new(&program);
    command.current_dir(&directory);
    let server = start(&mut command, "serve server.conf 3", 3);
    let said = run(&program, "load client.conf 3 400 20000 10.83.0.1");
    assert!(said.contains("done"));
    assert!(end(server).contains("done"));
}

/// A lab with a veth pair; `file` configures our end.
fn beside_the_kernel(name: &str, file: &str) -> Option<Lab> {
    Some(configured(Lab::new(name)?.with_veth(), file))
}

fn configured(lab: Lab, file: &str) -> Lab {
    let address = format!("{}/24", OURS[0]);
    configuration(&lab.directory, file, "io = xdp\nport = right", &address);
    lab
}

/// Both processes drive one end of the pair, and the kernel has no address on it.
#[test]
fn server_and_load_generator_meet_over_xdp() {
    let Some(lab) = beside_the_kernel("ports-xdp", "server.conf") else {
        return;
    };
    lab.ip("kernel", "addr flush dev left");
    let address = format!("{}/24", common::lab::KERNEL[0]);
    configuration(
        &lab.directory,
        "client.conf",
        "io = xdp\nport = left",
        &address,
    );
    let (server, client) = (
        build(&lab.directory, "docserver.c"),
        build(&lab.directory, "puller.c"),
    );
    let mut command = lab.command("ours", &server);
    let server = start(&mut command, "-f server.conf -N 2", 2);
    for (words, expected) in [
        (
            "-c 400 -n 2000 -b 3000",
            "finished 4000 failed 0 bytes 12000000 ",
        ),
        ("-c 40 -n 40 -b 0", "finished 80 failed 0 bytes 0 "),
        (
            "-c 20 -n 20 -b 1000000",
            "finished 40 failed 0 bytes 40000000 ",
        ),
    ] {
        let mut command = lab.command("kernel", &client);
        command.args(["-f", "client.conf", "-N", "2"]);
        command.args(words.split(' ')).arg(OURS[0]);
        let said = printed(&[words], &command.output().unwrap());
        assert!(said.contains(expected), "{said}");
    }
    assert!(end(server).contains("errors 0"));
}

/// One stack per core on a wire with one queue, with kernel clients.
#[test]
fn server_serves_crowds_of_the_kernel() {
    let Some(lab) = beside_the_kernel("ports-veth", "server.conf") else {
        return;
    };
    let program = build(&lab.directory, "docserver.c");
    let mut command = lab.command("ours", &program);
    let server = start(&mut command, "-f server.conf -N 2", 2);
    let url = |length: u32| format!("http://{}/{length}", OURS[0]);
    for keep in [&["-k"][..], &[]] {
        let ab = ["ab", "-q", "-s", "60", "-n", "4000", "-c", "500"];
        let said = lab.run(&[&ab[..], keep, &[&url(1000)]].concat());
        assert!(said.contains("Complete requests:      4000"), "{said}");
        assert!(said.contains("Failed requests:        0"), "{said}");
    }
    let wrk = ["wrk", "-t2", "-c400", "-d4s", "--timeout", "30s"];
    let said = lab.run(&[&wrk[..], &[&url(1_000_000)]].concat());
    println!("{said}");
    assert!(!said.contains("Socket errors"), "{said}");
    assert!(!said.contains("Non-2xx"), "{said}");
    let said = end(server);
    assert!(said.contains(" errors "), "{said}");
}

/// Frames arrive at each queue of the interface, and a single stack gets all of them.
#[test]
fn one_stack_serves_a_wire_of_many_queues() {
    let Some(lab) = Lab::new("ports-queues") else {
        return;
    };
    let lab = configured(lab.with_veth_queues(2), "server.conf");
    let program = build(&lab.directory, "docserver.c");
    let mut command = lab.command("ours", &program);
    let server = start(&mut command, "-f server.conf -N 1", 1);
    let url = format!("http://{}/1000", OURS[0]);
    let said = lab.run(&["ab", "-q", "-s", "20", "-n", "500", "-c", "50", &url]);
    assert!(said.contains("Complete requests:      500"), "{said}");
    assert!(said.contains("Failed requests:        0"), "{said}");
    assert!(end(server).contains("errors 0"));
}

/// The configuration is read before fork, as daemons do, and holds in the child.
#[test]
fn server_goes_into_the_background() {
    let Some(lab) = beside_the_kernel("ports-daemon", "server.conf") else {
        return;
    };
    let program = build(&lab.directory, "docserver.c");
    let mut command = lab.command("ours", &program);
    command.args(["-f", "server.conf", "-N", "1", "-d"]);
    let mut parent = Running::start(command.stdout(Stdio::piped()));
    // Parent and child print at the same time, in either order.
    let lines = [parent.first_line(), parent.first_line()];
    assert!(lines.iter().any(|line| line.contains("ready")), "{lines:?}");
    let named = lines
        .iter()
        .find_map(|line| line.strip_prefix("background "));
    let child: i32 = named.unwrap().parse().unwrap();
    let url = format!("http://{}/10", OURS[0]);
    let got = lab.run(&["curl", "-sS", "--max-time", "20", &url]);
    let child = rustix::process::Pid::from_raw(child).unwrap();
    rustix::process::kill_process(child, Signal::INT).unwrap();
    assert_eq!(got.len(), 10, "{got}");
    let said = printed(&["the server"], &parent.wait());
    assert!(said.contains("answers 1 bytes 10 errors 0"), "{said}");
}

#[test]
fn load_generator_asks_the_kernel() {
    let Some(lab) = beside_the_kernel("ports-client", "client.conf") else {
        return;
    };
    let body: Vec<u8> = (0..20_000_usize)
        .map(|at| b'a' + (at * 31 / 7 % 26) as u8)
        .collect();
    common::kernel::serve_at(&lab, "kernel", common::lab::KERNEL[0], 80, body);
    let program = build(&lab.directory, "puller.c");
    let words = format!(
        "-f client.conf -N 2 -c 100 -n 400 -b 20000 {}",
        common::lab::KERNEL[0]
    );
    let mut command = lab.command("ours", &program);
    let output = command.args(words.split(' ')).output().unwrap();
    let said = printed(&[&words], &output);
    assert!(
        said.contains("finished 800 failed 0 bytes 16000000 "),
        "{said}"
    );
}
