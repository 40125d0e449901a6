//! The examples compile without warnings, as C and as C++, and run: over a veth pair against curl,
//! wrk and ab, and over memif against each other. Programs that run are built with the sanitizers.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::With;
use common::kernel;
use common::lab::{Lab, OURS, Running, printed};

/// Each program and its sources.
const PROGRAMS: [(&str, &[&str]); 4] = [
    ("echo", &["echo.c"]),
    ("webserver", &["webserver.c", "files.c"]),
    ("downloader", &["downloader.c"]),
    ("relay", &["relay.c"]),
];
const CURL: [&str; 4] = ["curl", "-sS", "--max-time", "30"];

fn sources(name: &str) -> Vec<PathBuf> {
    let (_, files) = PROGRAMS.iter().find(|(other, _)| *other == name).unwrap();
    let directory = common::crate_directory().join("examples");
    files.iter().map(|file| directory.join(file)).collect()
}

/// Builds a program with the sanitizers in a directory.
fn build(directory: &Path, name: &str) -> PathBuf {
    let program = directory.join(name);
    common::compile(
        "gcc",
        &sources(name),
        &common::SANITIZE,
        With::Libmtcp,
        &program,
    );
    program
}

/// A configuration for one stack on the lab's interface.
fn config(lab: &Lab, io: &str) -> String {
    let text = format!(
        "io = {io}\nport = right\nip_addr = {}/24 {}/64\nnum_cores = 1\nmax_concurrency = 1000\n",
        OURS[0], OURS[1]
    );
    let path = lab.write("mtcp.conf", text.as_bytes());
    path.to_str().unwrap().to_owned()
}

/// Starts one of our programs and waits for its first line.
fn start(lab: &Lab, name: &str, words: &[&str]) -> Running {
    let program = build(&lab.directory, name);
    let mut command = lab.command("ours", &program);
    command.args(words).stdout(Stdio::piped());
    let mut running = Running::start(&mut command);
    let line = running.first_line();
    assert!(line.contains("ready"), "{name}: \"{line}\"");
    running
}

/// Ends a program; the sanitizers must report nothing. Returns its output.
fn ends_well(running: Running) -> String {
    printed(&["the example"], &running.end())
}

#[test]
fn examples_compile_as_c_and_as_cxx() {
    let directory = common::scratch("examples-compile");
    for (name, _) in PROGRAMS {
        for compiler in ["gcc", "g++"] {
            let program = directory.join(format!("{name}-{compiler}"));
            common::compile(compiler, &sources(name), &[], With::Libmtcp, &program);
        }
    }
}

#[test]
fn wire_that_does_not_open_is_told_with_the_matching_line_of_the_doctor() {
    let directory = common::scratch("examples-doctor");
    let program = directory.join("echo");
    common::compile("gcc", &sources("echo"), &[], With::Libmtcp, &program);
    let config = directory.join("mtcp.conf");
    let text = "io = packet\nport = mtcp-none\nip_addr = 10.9.0.1/24\nnum_cores = 1\n";
    fs::write(&config, text).unwrap();
    let none = directory.join("none/a.sock").display().to_string();
    for (wire, check) in [
        ("packet:mtcp-none".to_owned(), "interface"),
        ("xdp:mtcp-none".to_owned(), "interface"),
        (format!("mux:{none}"), "service"),
        (format!("memif:{none}"), "memif"),
        (format!("dpdk:0,plugin={none}"), "plug-in"),
    ] {
        let mut command = Command::new("timeout");
        command.arg("60").arg(&program).arg("-f").arg(&config);
        let output = command.env("MILLSTREAM_WIRE", &wire).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{wire}: {said}");
        let wanted = format!("mtcp: doctor: {check}: ");
        let lines = said.lines().filter(|line| line.starts_with(&wanted));
        assert_eq!(lines.count(), 1, "{wire}: {said}");
    }
}

#[test]
fn webserver_serves_curl_wrk_and_ab() {
    let Some(lab) = Lab::new("webserver") else {
        return;
    };
    let lab = lab.with_veth();
    lab.write("www/index.html", b"<p>hello</p>");
    lab.write("www/deep/er/page.txt", b"deep");
    let large = kernel::noise(5_000_000);
    lab.write("www/large", &large);
    let server = start(&lab, "webserver", &["-f", &config(&lab, "xdp"), "www"]);
    let curl = |words: &[&str]| lab.run(&[&CURL[..], words].concat());
    let url = |path: &str| format!("http://{}{path}", OURS[0]);

    assert_eq!(curl(&[&url("/")]), "<p>hello</p>");
    assert_eq!(curl(&[&url("/deep/er/page.txt?x=y")]), "deep");
    // Two documents on one connection: the second reuses it.
    let reuse = curl(&["-w", "%{num_connects}", &url("/"), &url("/index.html")]);
    assert_eq!(reuse, "<p>hello</p>1<p>hello</p>0");
    assert!(curl(&["-I", &url("/")]).starts_with("HTTP/1.1 200 OK\r\n"));
    let status =
        |words: &[&str]| curl(&[&["-o", "/dev/null", "-w", "%{http_code}"], words].concat());
    assert_eq!(status(&[&url("/none")]), "404");
    assert_eq!(status(&["--path-as-is", &url("/../mtcp.conf")]), "404");
    assert_eq!(status(&["-d", "x=y", &url("/")]), "405");
    assert_eq!(curl(&[&format!("http://[{}]/", OURS[1])]), "<p>hello</p>");
    let copy = lab.directory.join("copy");
    curl(&["-o", copy.to_str().unwrap(), &url("/large")]);
    assert!(fs::read(&copy).unwrap() == large);

    let wrk = lab.run(&["wrk", "-t1", "-c32", "-d2s", &url("/")]);
    assert!(wrk.contains("requests in"), "{wrk}");
    assert!(
        !wrk.contains("Socket errors") && !wrk.contains("Non-2xx"),
        "{wrk}"
    );
    let target = url("/");
    for keep in [&["-k"][..], &[]] {
        let ab = ["ab", "-q", "-n", "500", "-c", "20"];
        let ab = lab.run(&[&ab[..], keep, &[target.as_str()]].concat());
        assert!(ab.contains("Complete requests:      500"), "{ab}");
        assert!(ab.contains("Failed requests:        0"), "{ab}");
    }
    ends_well(server);
}

#[test]
fn echo_sends_everything_back() {
    let Some(lab) = Lab::new("echo") else {
        return;
    };
    let lab = lab.with_veth();
    let server = start(&lab, "echo", &["-f", &config(&lab, "xdp")]);
    let client = kernel::within(&lab, "kernel", || {
        // One connection at a time, as the server requires.
        for length in [1, 1000, 300_000] {
            let bytes = kernel::noise(length);
            let stream = kernel::connect(format!("{}:7", OURS[0]).parse().unwrap());
            assert!(kernel::echoed(&stream, &bytes) == bytes, "{length}");
        }
    });
    client.join().unwrap();
    ends_well(server);
}

#[test]
fn downloader_downloads_from_the_kernel() {
    let Some(lab) = Lab::new("downloader") else {
        return;
    };
    let lab = lab.with_veth();
    let body = kernel::noise(200_000);
    let port = kernel::serve(&lab, "kernel", common::lab::KERNEL[0], body.clone());
    let program = build(&lab.directory, "downloader");
    let url = format!("http://{}:{port}/", common::lab::KERNEL[0]);
    let config = config(&lab, "xdp");
    let words = ["-f", &config, "-c", "10", "-n", "100", "-o", "copy", &url];
    let output = lab.command("ours", &program).args(words).output().unwrap();
    let said = printed(&words, &output);
    let total = 100 * body.len();
    assert!(
        said.contains(&format!("100 downloads, {total} bytes, 0 failed")),
        "{said}"
    );
    assert!(fs::read(lab.directory.join("copy")).unwrap() == body);
}

#[test]
fn relay_joins_both_worlds() {
    let Some(lab) = Lab::new("relay") else {
        return;
    };
    let lab = lab.with_veth();
    let body = kernel::noise(2_000_000);
    let port = kernel::serve(&lab, "ours", "127.0.0.1", body.clone());
    let backend = format!("127.0.0.1:{port}");
    let relay = start(&lab, "relay", &["-f", &config(&lab, "xdp"), &backend]);
    let copy = lab.directory.join("copy");
    let url = format!("http://{}/", OURS[0]);
    for _ in 0..5 {
        lab.run(&[&CURL[..], &["-o", copy.to_str().unwrap(), &url]].concat());
        assert!(fs::read(&copy).unwrap() == body);
    }
    let ab = lab.run(&["ab", "-q", "-n", "20", "-c", "5", &url]);
    assert!(ab.contains("Failed requests:        0"), "{ab}");
    let said = ends_well(relay);
    // ab may open one more connection than it uses.
    let last = said.lines().last().unwrap();
    let served = [
        "relay: 25 connections, 0 open",
        "relay: 26 connections, 0 open",
    ];
    assert!(served.iter().any(|words| last.starts_with(words)), "{said}");
}

/// Writes `server.conf` and `client.conf` for both ends of a memif.
fn memif(directory: &Path, queues: u32) {
    for (name, role, address) in [("server", "server", 1), ("client", "client", 2)] {
        let text = format!(
            "io = memif\nport = wire.sock,role={role},queues={queues}\nip_addr = 10.79.0.{address}/24\nnum_cores = {queues}\nmax_concurrency = 1000\n"
        );
        fs::write(directory.join(format!("{name}.conf")), text).unwrap();
    }
}

fn start_in(directory: &Path, program: &Path, words: &[&str]) -> Running {
    let mut command = Command::new(program);
    command
        .args(words)
        .current_dir(directory)
        .stdout(Stdio::piped());
    let mut running = Running::start(&mut command);
    assert!(running.first_line().contains("ready"));
    running
}

fn run_in(directory: &Path, program: &Path, words: &str) -> String {
    let words: Vec<&str> = words.split(' ').collect();
    let mut command = Command::new(program);
    let output = command
        .args(&words)
        .current_dir(directory)
        .output()
        .unwrap();
    printed(&words, &output)
}

/// Two programs with two contexts each over shared memory, which needs no root and no interface.
#[test]
fn webserver_and_downloader_meet_over_memif() {
    let directory = common::scratch("examples-memif");
    let body = kernel::noise(100_000);
    fs::create_dir(directory.join("www")).unwrap();
    fs::write(directory.join("www/document"), &body).unwrap();
    memif(&directory, 2);
    let webserver = build(&directory, "webserver");
    let mut server = start_in(&directory, &webserver, &["-f", "server.conf", "www"]);
    assert!(server.first_line().contains("ready"));

    let downloader = build(&directory, "downloader");
    let words = "-f client.conf -c 40 -n 400 -o copy http://10.79.0.1/document";
    let said = run_in(&directory, &downloader, words);
    let total = 400 * body.len();
    assert!(
        said.contains(&format!("400 downloads, {total} bytes, 0 failed")),
        "{said}"
    );
    assert!(fs::read(directory.join("copy")).unwrap() == body);
    ends_well(server);
}

/// The server ends while it has active and silent connections, and frees their resources.
#[test]
fn webserver_ends_in_the_middle_of_it_all() {
    let directory = common::scratch("examples-middle");
    fs::create_dir(directory.join("www")).unwrap();
    fs::write(directory.join("www/document"), kernel::noise(3_000_000)).unwrap();
    memif(&directory, 1);
    let webserver = build(&directory, "webserver");
    let server = start_in(&directory, &webserver, &["-f", "server.conf", "www"]);
    let mut command = Command::new(build(&directory, "downloader"));
    command
        .args("-f client.conf -c 100 -n 100000 http://10.79.0.1/document".split(' '))
        .current_dir(&directory)
        .stderr(Stdio::null());
    let downloader = Running::start(&mut command);
    std::thread::sleep(std::time::Duration::from_millis(800));
    ends_well(server);
    drop(downloader);
}

#[test]
fn echo_answers_over_memif() {
    let directory = common::scratch("examples-echo-memif");
    memif(&directory, 1);
    let server = start_in(
        &directory,
        &build(&directory, "echo"),
        &["-f", "server.conf"],
    );
    let client = directory.join("echoer");
    let source = common::crate_directory().join("tests/ports/echoer.cc");
    let flags = [&["-std=c++11"], &common::SANITIZE[..]].concat();
    common::compile("g++", &[source], &flags, With::Libmtcp, &client);
    // Three connections at a time to a server that serves one at a time.
    let said = run_in(&directory, &client, "load client.conf 1 3 50000 10.79.0.1");
    assert!(said.contains("done"), "{said}");
    ends_well(server);
}

#[test]
fn relay_joins_memif_and_the_kernel() {
    let directory = common::scratch("examples-relay-memif");
    memif(&directory, 1);
    let body = kernel::noise(500_000);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let backend = format!("127.0.0.1:{}", kernel::serve_on(listener, body.clone()));
    let program = build(&directory, "relay");
    let relay = start_in(&directory, &program, &["-f", "server.conf", &backend]);
    let downloader = build(&directory, "downloader");
    let words = "-f client.conf -c 10 -n 40 -o copy http://10.79.0.1/";
    let said = run_in(&directory, &downloader, words);
    assert!(
        said.contains("40 downloads, 20000000 bytes, 0 failed"),
        "{said}"
    );
    assert!(fs::read(directory.join("copy")).unwrap() == body);
    let said = ends_well(relay);
    assert!(said.contains("40 connections, 0 open"), "{said}");
}
