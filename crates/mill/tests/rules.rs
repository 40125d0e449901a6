//! `mill serve --rules`: packet rules applied to kernel clients over a veth pair.

mod world;

use world::{CURL, OURS, World};

/// Downloads `/a` from the server at an address, from a local address; returns curl's exit code.
/// Clients that shall get no answer have less patience.
fn fetch(world: &World, from: &str, address: &str, patience_s: &str) -> Option<i32> {
    let url = format!("http://{address}/a");
    let words = [
        "--interface",
        from,
        "--max-time",
        patience_s,
        "-o",
        "/dev/null",
    ];
    let got = world.kernel(&[&CURL[..2], &words, &[&url]].concat());
    got.status.code()
}

/// Exit codes of curl.
const OK: Option<i32> = Some(0);
const REFUSED: Option<i32> = Some(7);
const TIMED_OUT: Option<i32> = Some(28);

#[test]
fn kernels_clients_are_let_in_rejected_and_denied() {
    let Some(world) = World::new("rules") else {
        return;
    };
    for address in ["10.78.0.11/24", "10.78.0.12/24"] {
        world.run_ip("kernel", &format!("addr add {address} dev left"));
    }
    world.run_ip("kernel", "addr add fd78::12/64 dev left nodad");
    let document = world.write("site/a", &world::noise(20_000));
    let rules = world.write(
        "rules.toml",
        b"rule_default = 'deny'\n\
          [[rule]]\nname = 'closed'\nsource = '10.78.0.11'\naction = 'reject'\n\
          [[rule]]\nname = 'own'\nsource = '10.78.0.0/29'\ndestination_port = 80\n\
          [[rule]]\nname = 'six'\nsource = 'fd78::1'\nprotocol = 'tcp'\nwire = 1\n",
    );
    let options = ["--wire", "xdp:right", "--rules", rules.to_str().unwrap()];
    let site = document.parent().unwrap();
    let server = world.serve("ours", site, &[&options[..], &OURS].concat());
    assert_eq!(fetch(&world, "10.78.0.1", "10.78.0.2", "60"), OK);
    assert_eq!(fetch(&world, "10.78.0.11", "10.78.0.2", "60"), REFUSED);
    assert_eq!(fetch(&world, "10.78.0.12", "10.78.0.2", "1"), TIMED_OUT);
    assert_eq!(fetch(&world, "fd78::1", "[fd78::2]", "60"), OK);
    assert_eq!(fetch(&world, "fd78::12", "[fd78::2]", "1"), TIMED_OUT);
    let ping = ["ping", "-c", "1", "-W", "1", "10.78.0.2"];
    assert!(!world.kernel(&ping).status.success(), "no rule lets it in");
    let pid = server.pid().to_string();
    let metrics = String::from_utf8(world.ours(&["metrics"]).stdout).unwrap();
    let mine = |reason: &str| {
        let is_it = |line: &&str| {
            line.starts_with("millstream_drops_total{")
                && line.contains(&format!("process=\"{pid}\""))
                && line.contains(&format!("reason=\"{reason}\""))
        };
        let line = metrics.lines().find(is_it).expect("a sample");
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    assert!(mine("rx_drop_rule") >= 3.0, "two clients and a ping");
    assert!(mine("rx_drop_rule_reject") >= 1.0);
    let shown = world.ours(&["rules", "--pid", &pid, "--json"]);
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&shown.stdout).unwrap();
    let counts = |name: &str| {
        let row = rows.iter().find(|row| row["name"] == name).expect("a rule");
        (row["packets"].as_u64(), row["refused"].as_u64())
    };
    assert_eq!(rows.len(), 3);
    assert_eq!(counts("closed"), (Some(1), Some(1)));
    assert_eq!(counts("own"), (Some(1), Some(0)));
    assert_eq!(counts("six"), (Some(1), Some(0)));
    let said = server.stop();
    assert!(said.contains("rx_drop_rule"), "{said}");
}

#[test]
fn file_that_is_wrong_or_missing_is_named_with_its_line() {
    let directory = std::env::temp_dir().join(format!("mst-{}-rules-wrong", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("r.toml");
    std::fs::write(&file, "[[rule]]\nsource = '10.0.0/8'\n").unwrap();
    let said = |file: &std::path::Path, wire: &str| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_mill"))
            .args(["serve", "/tmp", "--wire", wire, "--addr", "10.0.0.2/24"])
            .arg("--rules")
            .arg(file)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let wrong = said(&file, "loopback:x");
    let place = format!(
        "{}:2: source: `10.0.0/8`: not an IP address",
        file.display()
    );
    assert!(wrong.contains(&place), "{wrong}");
    let missing = said(&directory.join("none.toml"), "loopback:x");
    assert!(missing.contains("none.toml"), "{missing}");
    let kernel = said(&file, "kernel");
    assert!(kernel.contains("--rules: the kernel's"), "{kernel}");
    std::fs::remove_dir_all(&directory).unwrap();
}
