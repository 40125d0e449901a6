//! `mill ss` compared with the kernel's `ss`: one parser reads both, for the two ends of a
//! connection.

mod world;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use world::{OURS, World};

/// A connection as a monitoring program parses it from `ss -tnoiH`. The program knows iproute2's
/// words, and not who printed them.
#[derive(Debug)]
struct Row {
    state: String,
    queues: [u64; 2],
    local: String,
    peer: String,
    /// `key:value` and `key value` pairs.
    values: BTreeMap<String, String>,
    /// Words without a value.
    flags: Vec<String>,
}

/// Keys whose value follows a blank.
const APART: [&str; 3] = ["send", "pacing_rate", "delivery_rate"];

fn parse(text: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if !line.starts_with(char::is_whitespace) {
            let mut word = || {
                words
                    .next()
                    .unwrap_or_else(|| panic!("short: {line}"))
                    .to_owned()
            };
            rows.push(Row {
                state: word(),
                queues: [word(), word()].map(|queue| queue.parse().unwrap()),
                local: word(),
                peer: word(),
                values: BTreeMap::new(),
                flags: Vec::new(),
            });
        }
        let row = rows.last_mut().unwrap();
        while let Some(word) = words.next() {
            if APART.contains(&word) {
                let value = words.next().unwrap();
                assert!(value.ends_with("bps"), "{word} {value}");
                row.values.insert(word.to_owned(), value.to_owned());
            } else if let Some((key, value)) = word.split_once(':') {
                row.values.insert(key.to_owned(), value.to_owned());
            } else {
                row.flags.push(word.to_owned());
            }
        }
    }
    rows
}

impl Row {
    fn number(&self, key: &str) -> u64 {
        let value = self.values.get(key);
        let value = value.unwrap_or_else(|| panic!("no {key}: {self:?}"));
        value.parse().unwrap_or_else(|_| panic!("{key}:{value}"))
    }
}

/// A client that has requested the document and keeps its connection.
struct Client(Child);

impl Client {
    fn new(world: &World) -> Self {
        let script = "exec 3<>/dev/tcp/10.78.0.2/80; \
            printf 'GET /a HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' >&3; head -c 1100 <&3 >/dev/null; \
            echo open; exec sleep 60";
        let mut command = Command::new("ip");
        command.args([
            "netns",
            "exec",
            &world.namespace("kernel"),
            "bash",
            "-c",
            script,
        ]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut open = [0; 5];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut open).unwrap();
        Self(child)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn said(output: &std::process::Output) -> String {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn one_parser_reads_both_ends_of_a_connection() {
    let Some(world) = World::new("ss") else {
        return;
    };
    let document = world.write("site/a", &[b'x'; 1000]);
    let site = document.parent().unwrap();
    let wire = ["--wire", "xdp:right"];
    let server = world.serve("ours", site, &[&wire[..], &OURS].concat());
    let pid = server.pid().to_string();
    let client = Client::new(&world);
    let filter = ["state", "established", "state", "close-wait"];
    let kernel = world.kernel(&[&["ss", "-tnoiaH"], &filter[..]].concat());
    let ours = world.ours(&[&["ss", "-tnoiaH", "--pid", &pid], &filter[..]].concat());
    let (kernel, ours) = (parse(&said(&kernel)), parse(&said(&ours)));
    assert_eq!((kernel.len(), ours.len()), (1, 1), "{kernel:?} {ours:?}");
    let (kernel, ours) = (&kernel[0], &ours[0]);
    assert_eq!(
        (&kernel.state, kernel.queues[1]),
        (&ours.state, ours.queues[1])
    );
    assert_eq!((&kernel.local, &kernel.peer), (&ours.peer, &ours.local));
    assert_eq!(kernel.number("bytes_received"), ours.number("bytes_acked"));
    assert_eq!(kernel.number("bytes_received"), ours.number("bytes_sent"));
    assert_eq!(ours.number("mss"), kernel.number("mss"));
    assert_eq!(ours.number("pmtu"), 1500);
    for key in [
        "rto", "rtt", "cwnd", "segs_in", "segs_out", "minrtt", "wscale", "lastsnd",
    ] {
        for row in [kernel, ours] {
            assert!(row.values.contains_key(key), "{key}: {row:?}");
        }
    }
    for flag in ["ts", "sack", "cubic"] {
        assert!(ours.flags.iter().any(|one| one == flag), "{flag}: {ours:?}");
    }
    drop(client);
    server.stop();
}

/// Sockets as the third-party program `jc --ss` parses them; `None` if it is not installed.
fn by_jc(text: &str) -> Option<Vec<serde_json::Value>> {
    let mut command = Command::new("jc");
    command.arg("--ss").stdin(Stdio::piped());
    let Ok(mut child) = command.stdout(Stdio::piped()).spawn() else {
        eprintln!("ignored: jc is not installed");
        return None;
    };
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, text.as_bytes()).unwrap();
    drop(stdin);
    let json = said(&child.wait_with_output().unwrap());
    Some(serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}")))
}

#[test]
fn parser_of_others_reads_both_programs() {
    let Some(world) = World::new("ss-jc") else {
        return;
    };
    let document = world.write("site/a", &[b'x'; 1000]);
    let site = document.parent().unwrap();
    let wire = ["--wire", "xdp:right"];
    let server = world.serve("ours", site, &[&wire[..], &OURS].concat());
    let pid = server.pid().to_string();
    let client = Client::new(&world);
    // jc reads the table with the column Netid.
    let kernel = said(&world.kernel(&["ss", "-an", "state", "all"]));
    let ours = said(&world.ours(&["ss", "-an", "--pid", &pid]));
    let (Some(kernel), Some(ours)) = (by_jc(&kernel), by_jc(&ours)) else {
        return;
    };
    let open = |rows: &[serde_json::Value]| {
        let is_open = |row: &&serde_json::Value| {
            let state = row["state"].as_str();
            row["netid"] == "tcp" && matches!(state, Some("ESTAB" | "CLOSE-WAIT"))
        };
        let found = rows.iter().find(is_open);
        found.cloned().unwrap_or_else(|| panic!("{rows:?}"))
    };
    let (kernel, ours) = (open(&kernel), open(&ours));
    // Where iproute2 prints no blank between two headers, jc takes them for one.
    let peer_port = |row: &serde_json::Value| {
        let names = ["peer_port", "peer_portprocess"];
        let port = names.iter().find_map(|name| row[*name].as_str());
        port.map(str::to_owned)
    };
    assert_eq!(kernel["local_address"], ours["peer_address"]);
    assert_eq!(kernel["peer_address"], ours["local_address"]);
    assert_eq!(kernel["local_port"].as_str(), peer_port(&ours).as_deref());
    assert_eq!(ours["local_port"].as_str(), peer_port(&kernel).as_deref());
    assert_eq!(ours["send_q"], 0);
    drop(client);
    server.stop();
}

/// The names of what a line of `ss` says: `cwnd` of `cwnd:10`, `skmem` of `skmem:(r0,…)`.
fn names(line: &str) -> Vec<&str> {
    let name = |word: &'_ str| word.find([':', '(']).unwrap_or(word.len());
    let words = line.split_whitespace().skip(5);
    words.map(|word| &word[..name(word)]).collect()
}

#[test]
fn connection_is_told_with_all_letters_in_the_kernels_order() {
    let Some(world) = World::new("ss-letters") else {
        return;
    };
    let document = world.write("site/a", &[b'x'; 1000]);
    let site = document.parent().unwrap();
    let wire = ["--wire", "xdp:right"];
    let server = world.serve("ours", site, &[&wire[..], &OURS].concat());
    let pid = server.pid().to_string();
    let client = Client::new(&world);
    let letters = ["ss", "-tnoiempOH", "state", "established"];
    let kernel = said(&world.kernel(&letters));
    let ours = said(&world.ours(&[&letters[..], &["--pid", &pid]].concat()));
    let users = format!("users:((\"mill\",pid={pid},fd=");
    assert!(ours.contains(&users), "{ours}");
    let both = |one: &str, other: &str| -> Vec<String> {
        let others = names(other);
        let shared = names(one).into_iter().filter(|name| others.contains(name));
        shared.map(str::to_owned).collect()
    };
    let (first, second) = (both(&ours, &kernel), both(&kernel, &ours));
    assert_eq!(first, second, "{ours}{kernel}");
    for name in ["ino", "sk", "skmem", "sack", "wscale", "rto", "mss", "cwnd"] {
        assert!(first.iter().any(|one| one == name), "{name}: {first:?}");
    }
    drop(client);
    server.stop();
}

#[test]
fn listeners_summary_and_kill_of_a_running_server() {
    let Some(world) = World::new("ss-kill") else {
        return;
    };
    let document = world.write("site/a", &[b'x'; 1000]);
    let site = document.parent().unwrap();
    let server = world.serve(
        "ours",
        site,
        &[&["--wire", "xdp:right"][..], &OURS].concat(),
    );
    let pid = server.pid().to_string();
    let ask = |words: &[&str]| said(&world.ours(&[&["ss", "--pid", &pid], words].concat()));
    let listeners = ask(&["-tlnH"]);
    assert_eq!(listeners.lines().count(), 2, "{listeners}");
    assert!(listeners.contains("10.78.0.2:80") && listeners.contains("[fd78::2]:80"));
    let client = Client::new(&world);
    assert!(ask(&["-s"]).contains("estab 1"), "{}", ask(&["-s"]));
    let summary: serde_json::Value = serde_json::from_str(&ask(&["-s", "--json"])).unwrap();
    assert_eq!(
        (&summary["total"], &summary["established"]),
        (&3.into(), &1.into())
    );
    assert!(
        ask(&["-s", "dst", "10.78.0.9"]).contains("estab 0"),
        "filtered"
    );
    let json: serde_json::Value = serde_json::from_str(&ask(&["--json"])).unwrap();
    assert_eq!(json[0]["state"], "ESTAB");
    assert_eq!(
        ask(&["-tnHK", "dst", "10.78.0.9"]),
        "",
        "the filter spares it"
    );
    let begun = ask(&["-tnHv", "dst", "10.78.0.1"]);
    assert!(begun.contains("the story begins in ESTAB"), "{begun}");
    let mut trace = Command::new("ip");
    trace.args([
        "netns",
        "exec",
        &world.namespace("ours"),
        env!("CARGO_BIN_EXE_mill"),
    ]);
    trace.args(["trace", "--pid", &pid, "dst", "10.78.0.1"]);
    let mut trace = trace.stdout(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(trace.stdout.take().unwrap()).lines();
    let mut next = || told.next().and_then(Result::ok).unwrap_or_default();
    assert!(next().starts_with("process "), "the connection is named");
    assert!(next().ends_with("the story begins in ESTAB"));
    let killed = ask(&["-tnHK", "dst", "10.78.0.1"]);
    assert!(killed.starts_with("ESTAB"), "{killed}");
    assert!(ask(&["-s"]).contains("estab 0"));
    let kernel = said(&world.kernel(&["ss", "-tnH", "state", "established"]));
    assert_eq!(kernel, "", "the peer was reset");
    assert!(next().ends_with("ESTAB -> UNCONN"), "the trace goes on");
    assert_eq!(next(), "the connection has gone");
    assert!(trace.wait().unwrap().success());
    drop(client);
    server.stop();
}
