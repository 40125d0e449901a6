//! `mill serve` under curl, and `mill get` against a server on the kernel's stack, over AF_XDP on a
//! veth pair.

mod world;

use std::fs;
use std::process::Output;
use std::time::{Duration, Instant};

use world::{CURL, OURS, Server, World, noise};

fn text(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Options that follow `mill serve DIR`.
fn ours<'a>(wire: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["--wire", wire], &OURS[..], more].concat()
}

#[test]
fn curl_gets_what_a_server_owes_it() {
    let Some(world) = World::new("curl") else {
        return;
    };
    world.write("www/index.html", b"<p>hello</p>");
    let large = noise(20_000_000);
    world.write("www/large", &large);
    world.write("secret", b"secret");
    let _server = world.serve(
        "ours",
        &world.directory.join("www"),
        &ours("xdp:right", &[]),
    );
    let curl = |words: &[&str]| text(&world.kernel(&[&CURL[..], words].concat()));
    let url = |path: &str| format!("http://10.78.0.2{path}");

    assert_eq!(curl(&[&url("/")]), "<p>hello</p>");
    // Two URLs on one connection: the second reuses it.
    let reuse = curl(&["-w", "%{num_connects}", &url("/"), &url("/index.html")]);
    assert_eq!(reuse, "<p>hello</p>1<p>hello</p>0");
    assert!(curl(&["-I", &url("/")]).starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(curl(&["-r", "3-7", &url("/")]), "hello");
    let status =
        |words: &[&str]| curl(&[&["-o", "/dev/null", "-w", "%{http_code}"], words].concat());
    assert_eq!(status(&["-r", "3-7", &url("/")]), "206");
    assert_eq!(status(&["-r", "500-", &url("/")]), "416");
    assert_eq!(status(&[&url("/none")]), "404");
    assert_eq!(status(&["--path-as-is", &url("/../secret")]), "400");
    assert_eq!(status(&["--path-as-is", &url("/%2e%2e/secret")]), "400");
    assert_eq!(status(&["-d", "x=y", &url("/")]), "405");
    assert_eq!(status(&["-X", "BREW", &url("/")]), "501");
    let future = "If-Modified-Since: Fri, 31 Dec 9999 23:59:59 GMT";
    assert_eq!(status(&["-H", future, &url("/")]), "304");
    assert_eq!(curl(&["http://[fd78::2]/"]), "<p>hello</p>");

    for url in [url("/large"), "http://[fd78::2]/large".to_owned()] {
        let copy = world.directory.join("copy");
        curl(&["-o", copy.to_str().unwrap(), &url]);
        assert!(fs::read(&copy).unwrap() == large, "{url}");
    }
}

#[test]
fn curl_over_a_bad_wire_gets_the_same_bytes() {
    let Some(world) = World::new("bad") else {
        return;
    };
    let large = noise(2_000_000);
    world.write("www/large", &large);
    let wire = "xdp:right,loss=1%,reorder=1%,dup=1%,seed=7";
    for crank in ["inline", "dedicated"] {
        let _server = world.serve(
            "ours",
            &world.directory.join("www"),
            &ours(wire, &["--crank", crank]),
        );
        let copy = world.directory.join("copy");
        let words = ["-o", copy.to_str().unwrap(), "http://10.78.0.2/large"];
        text(&world.kernel(&[&CURL[..], &words].concat()));
        assert!(fs::read(&copy).unwrap() == large, "{crank}");
    }
}

#[test]
fn keep_alive_of_long_and_short_documents_changes_its_lane_in_order() {
    let Some(world) = World::new("lanes") else {
        return;
    };
    let (large, small) = (noise(3_000_000), noise(500));
    world.write("www/large", &large);
    world.write("www/small", &small);
    let paths = [
        "small", "large", "large", "small", "small", "large", "small",
    ];
    let whole: Vec<u8> = paths
        .iter()
        .flat_map(|path| if *path == "small" { &small } else { &large })
        .copied()
        .collect();
    for (wire, has_lane) in [("xdp:right", true), ("xdp:right,bulk=off", false)] {
        let server = world.serve("ours", &world.directory.join("www"), &ours(wire, &[]));
        let urls = paths.map(|path| format!("http://10.78.0.2/{path}"));
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        let got = world.kernel(&[&CURL[..], &urls].concat());
        assert!(got.status.success() && got.stdout == whole, "{wire}");
        let by_lane = || bulk_frames(&world, &server);
        if !has_lane {
            assert_eq!(by_lane(), None);
            continue;
        }
        // Counters are published from time to time. In single segments all large documents would
        // take 6,200 frames.
        let deadline = Instant::now() + Duration::from_secs(60);
        while by_lane() < Some(100.0) {
            assert!(Instant::now() < deadline, "{:?}", by_lane());
            world.kernel(&[&CURL[..], &urls[..1]].concat());
        }
        assert!(by_lane() < Some(2_000.0), "{:?}", by_lane());
    }
}

/// The number of frames that a server's bulk lane has sent; `None` without such a lane.
fn bulk_frames(world: &World, server: &Server) -> Option<f64> {
    let page = text(&world.ours(&["metrics", "--pid", &server.pid().to_string()]));
    let line = page
        .lines()
        .find(|line| line.starts_with("millstream_xdp_bulk_frames_total"))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn get_downloads_from_a_server_on_the_kernel() {
    let Some(world) = World::new("get") else {
        return;
    };
    let large = noise(10_000_000);
    world.write("www/large", &large);
    let address = ["--wire", "kernel", "--addr"];
    for (listen, url) in [
        ("10.78.0.1/24", "http://10.78.0.1/large"),
        ("fd78::1/64", "http://[fd78::1]/large"),
    ] {
        let _server = world.serve(
            "kernel",
            &world.directory.join("www"),
            &[&address[..], &[listen]].concat(),
        );
        let copy = world.directory.join("copy");
        let words = [
            "get",
            url,
            "-o",
            copy.to_str().unwrap(),
            "--wire",
            "xdp:right",
        ];
        text(&world.ours(&[&words[..], &OURS[..]].concat()));
        assert!(fs::read(&copy).unwrap() == large, "{url}");
    }
}

/// Invalid command lines, each with a part of its error. DIR stands for an existing directory.
const WRONG: &[(&str, &str)] = &[
    ("serve DIR --wire xdp:nosuch --addr 10.0.0.2/24", "nosuch"),
    ("serve DIR --wire xdp:right", "--addr is missing"),
    (
        "serve DIR --wire xdp:right,colour=red --addr 10.0.0.2/24",
        "colour",
    ),
    (
        "serve /no/such --wire xdp:right --addr 10.0.0.2/24",
        "/no/such",
    ),
    (
        "serve DIR --wire xdp:right --addr 10.0.0.2/24 --gateway 10.9.9.9",
        "10.9.9.9",
    ),
    (
        "get http://10.0.0.1/ --wire xdp:right --addr 224.0.0.1/24",
        "224.0.0.1",
    ),
    (
        "get https://10.0.0.1/ --wire xdp:right",
        "https is not supported",
    ),
    ("wire tap:a carrier:pigeon", "carrier"),
    ("wire packet:lo packet:nosuch", "nosuch"),
    ("wire packet:lo packet:lo --loss 2x", "--loss 2x"),
];

#[test]
fn wrong_words_are_one_line_and_status_2() {
    let Some(world) = World::new("wrong") else {
        return;
    };
    let directory = world.directory.to_str().unwrap();
    for (line, part) in WRONG {
        let line = line.replace("DIR", directory);
        let words: Vec<&str> = line.split(' ').collect();
        let output = world.ours(&words);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {complaint}");
        // A wire that does not open also gets the matching line of `mill doctor`.
        let lines = complaint.trim_end().lines();
        let own = lines.filter(|line| !line.starts_with("mill: doctor: "));
        assert_eq!(own.count(), 1, "{line}: {complaint}");
        assert!(
            complaint.starts_with("mill: ") && complaint.contains(part),
            "{line}: {complaint}"
        );
    }
}
