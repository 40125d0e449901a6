//! C programs of libmtcp over `mill mux`: a configuration for another driver works with `io = mux`,
//! for an unprivileged user.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::PoisonError;

use crate::world::{CURL, World, noise};
use crate::{ONE, Program, Service, curl, run};

/// The crate of libmtcp, with its headers and examples.
const CAPI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../capi");

const WEBSERVER: [&str; 2] = ["capi/examples/webserver.c", "capi/examples/files.c"];

/// Where cargo has put `libmtcp.so`: beside this test.
fn library_directory() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let mut places = own.ancestors().skip(1).take(2);
    let found = places.find(|directory| directory.join("libmtcp.so").exists());
    let found = found.expect("libmtcp.so").to_owned();
    // Programs ask for the major version. Another test may have made the link.
    let _ = std::os::unix::fs::symlink("libmtcp.so", found.join("libmtcp.so.1"));
    found
}

/// Compiles a program of sources below `crates` into the world's directory.
fn build(world: &World, name: &str, sources: &[&str]) -> String {
    let program = world.directory.join(name).to_str().unwrap().to_owned();
    let library = library_directory();
    let library = library.to_str().unwrap();
    let sources = sources.iter().map(|file| format!("{CAPI}/../{file}"));
    let mut words = vec!["-D_GNU_SOURCE".to_owned(), "-O1".to_owned()];
    words.extend([format!("-I{CAPI}/include"), "-o".to_owned()]);
    words.push(program.clone());
    words.extend(sources);
    words.extend([format!("-L{library}"), "-lmtcp".to_owned()]);
    words.extend([format!("-Wl,-rpath,{library}"), "-lpthread".to_owned()]);
    run("gcc", &words.iter().map(String::as_str).collect::<Vec<_>>());
    program
}

/// A command of an unprivileged user, in an empty network namespace.
fn unprivileged(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--net", "setpriv", "--reuid=65534", "--regid=65534"])
        .args(["--clear-groups", "--no-new-privs", "prlimit", "--memlock=0"])
        .args(words)
        .current_dir(directory)
        .stdin(Stdio::null());
    command
}

/// Starts a program and waits until it says that it is ready.
fn started(world: &World, words: &[&str]) -> Program {
    let mut command = unprivileged(&world.directory, words);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    let program = Program(child);
    assert!(line.contains("ready"), "{line}");
    program
}

/// A configuration as mTCP's programs have it for DPDK, except `io` and the test's socket.
fn configuration(service: &Service) -> String {
    format!(
        "io = mux\nport = {}\nnum_cores = 2\nnum_mem_ch = 4\nmax_concurrency = 1000\n\
         rcvbuf = 8192\nsndbuf = 8192\ntcp_timeout = 30\ntcp_timewait = 0\nstat_print = dpdk0\n",
        service.socket
    )
}

#[test]
fn programs_of_libmtcp_serve_and_download_without_privileges() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-mtcp") else {
        return;
    };
    let body = noise(200_000);
    world.write("www/file", &body);
    let service = Service::start(&world, &[]);
    world.write("mtcp.conf", configuration(&service).as_bytes());
    let webserver = build(&world, "webserver", &WEBSERVER);
    let downloader = build(&world, "downloader", &["capi/examples/downloader.c"]);

    let words = [
        &webserver,
        "-f",
        "mtcp.conf",
        "-t",
        "2",
        "-p",
        "8080",
        "www",
    ];
    let server = started(&world, &words);
    for _ in 0..20 {
        assert_eq!(curl(&world, "http://10.78.0.2:8080/file"), body);
    }
    let said = service.ask("status");
    assert!(
        said.contains("webserver") && said.contains("8080"),
        "{said}"
    );

    // The other host's kernel serves, and this host's address connects.
    let words = ["--wire", "kernel", "--port", "8000"];
    let kernel = world.serve("kernel", &world.directory.join("www"), &words);
    let url = "http://10.78.0.1:8000/file";
    let words = [&downloader, "-f", "mtcp.conf", "-t", "2"];
    let words = [&words[..], &["-c", "8", "-n", "64", url]].concat();
    let output = unprivileged(&world.directory, &words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said} {output:?}");
    let all = "64 downloads, 12800000 bytes, 0 failed";
    assert!(said.contains(all), "{said}");
    drop((server, kernel));
}

/// The child cannot use the parent's connection to the service, and makes its own.
#[test]
fn child_of_a_libmtcp_process_has_a_port_of_its_own() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-fork") else {
        return;
    };
    let service = Service::start(&world, &[]);
    world.write("mtcp.conf", configuration(&service).as_bytes());
    let forker = build(&world, "forker", &["mill/tests/mux/forker.c"]);
    let mut program = started(&world, &[&forker, "mtcp.conf"]);
    for (port, words) in [(8081, "child"), (8080, "parent")] {
        let url = format!("http://10.78.0.2:{port}/");
        let output = world.kernel(&[&CURL[..], &["--http0.9", &url]].concat());
        assert_eq!(String::from_utf8_lossy(&output.stdout), words, "{output:?}");
    }
    assert!(program.0.wait().unwrap().success());
}
