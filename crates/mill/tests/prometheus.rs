//! Prometheus's own programs read the output of `mill metrics`, and check the rules and the
//! dashboard of `packaging/grafana`.

mod world;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use world::{OURS, Server, World};

const MILL: &str = env!("CARGO_BIN_EXE_mill");
/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// Responses that the load fetches before the scrapes are checked.
const ANSWERS: usize = 200;

/// A program, killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn grafana(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../packaging/grafana/{name}"))
}

/// Runs promtool; `None` if it is not installed.
fn promtool(words: &[&str], input: &[u8]) -> Option<Output> {
    let mut command = Command::new("promtool");
    command.args(words).stdin(Stdio::piped());
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("ignored: promtool is not installed");
        return None;
    };
    child.stdin.take().unwrap().write_all(input).unwrap();
    Some(child.wait_with_output().unwrap())
}

#[track_caller]
fn accepts(words: &[&str], input: &[u8]) -> bool {
    let Some(output) = promtool(words, input) else {
        return false;
    };
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
    true
}

/// Every `expr` of a dashboard, as Grafana would send it.
fn expressions(value: &serde_json::Value, into: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, field) in fields {
                if let ("expr", Some(expr)) = (name.as_str(), field.as_str()) {
                    let expr = expr.replace("$process", ".*");
                    into.push(expr.replace("$__rate_interval", "5m"));
                }
                expressions(field, into);
            }
        }
        serde_json::Value::Array(all) => all.iter().for_each(|one| expressions(one, into)),
        _ => {}
    }
}

fn dashboard() -> Vec<String> {
    let text = std::fs::read_to_string(grafana("dashboard.json")).unwrap();
    let mut all = Vec::new();
    expressions(&serde_json::from_str(&text).unwrap(), &mut all);
    assert!(all.len() > 10, "{all:?}");
    all
}

#[test]
fn promtool_accepts_the_rules_and_the_dashboard() {
    let rules = grafana("rules.yml");
    if !accepts(&["check", "rules", rules.to_str().unwrap()], b"") {
        return;
    }
    // Each alert fires for the values that it is for, and none of the others does.
    let tests = grafana("rules_test.yml");
    accepts(&["test", "rules", tests.to_str().unwrap()], b"");
    // promtool cannot check dashboards, so each expression becomes a rule.
    let mut text = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    for (at, expr) in dashboard().iter().enumerate() {
        text += &format!("  - record: dashboard:{at}\n    expr: '{expr}'\n");
    }
    let path = std::env::temp_dir().join(format!("mst-{}-dashboard.yml", std::process::id()));
    std::fs::write(&path, text).unwrap();
    accepts(&["check", "rules", path.to_str().unwrap()], b"");
    std::fs::remove_file(&path).unwrap();
}

/// A world with a server that is under an HTTP load.
fn loaded(name: &str) -> Option<(World, Server)> {
    let world = World::new(name)?;
    let document = world.write("site/a", &world::noise(20_000));
    let site = document.parent().unwrap();
    let words = [&["--wire", "xdp:right"][..], &OURS].concat();
    let server = world.serve("ours", site, &words);
    Some((world, server))
}

/// Names of metrics that an expression uses.
fn names(expression: &str) -> Vec<String> {
    let is_word = |one: char| one.is_ascii_alphanumeric() || one == '_';
    let words = expression.split(|one: char| !is_word(one));
    let ours = words.filter(|word| word.starts_with("millstream_"));
    ours.map(str::to_owned).collect()
}

#[test]
fn promtool_reads_the_text_file_and_it_has_what_the_dashboard_shows() {
    let Some((world, server)) = loaded("promtext") else {
        return;
    };
    let file = world.directory.join("millstream.prom");
    let pid = server.pid().to_string();
    let words = ["metrics", "--interval", "0", "--pid", &pid, "--textfile"];
    let output = Command::new(MILL).args(words).arg(&file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read(&file).unwrap();
    accepts(&["check", "metrics"], &page);
    let page = String::from_utf8(page).unwrap();
    let rules = std::fs::read_to_string(grafana("rules.yml")).unwrap();
    let lines = rules
        .lines()
        .filter(|line| line.trim().starts_with("expr:"));
    for expression in dashboard().into_iter().chain(lines.map(str::to_owned)) {
        // Services have values of their own, which the tests of `mill mux` look for.
        let names = names(&expression).into_iter();
        for name in names.filter(|name| !name.starts_with("millstream_mux_")) {
            // Drops are labelled by reason, and a fresh server may have none.
            assert!(
                page.contains(&format!("\n{name}{{")),
                "{name} of {expression}"
            );
        }
    }
    server.stop();
}

/// Starts a Prometheus that scrapes `target` each second; returns its address for queries.
fn prometheus(world: &World, target: &str) -> Option<(Running, String)> {
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n\
         scrape_configs: [{{job_name: mill, static_configs: [{{targets: ['{target}']}}]}}]\n"
    );
    let config = world.write("prometheus.yml", config.as_bytes());
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let mut command = Command::new("prometheus");
    let data = world.directory.join("data");
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", data.display()))
        .arg(format!("--web.listen-address={address}"));
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    match child {
        Ok(child) => Some((Running(child), address)),
        Err(_) => {
            eprintln!("ignored: prometheus is not installed");
            None
        }
    }
}

/// The value of an instant query; `None` without one.
fn query(address: &str, expression: &str) -> Option<f64> {
    let query = format!("query={expression}");
    let url = format!("http://{address}/api/v1/query");
    let words = [
        "-sS",
        "--max-time",
        "5",
        "-G",
        "--data-urlencode",
        &query,
        &url,
    ];
    let output = Command::new("curl").args(words).output().ok()?;
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let value = answer.pointer("/data/result/0/value/1")?.as_str()?;
    value.parse().ok()
}

#[test]
fn prometheus_scrapes_a_server_under_load() {
    let Some((world, server)) = loaded("promload") else {
        return;
    };
    let mut command = Command::new(MILL);
    // Other processes of this host may be observed at the same time.
    let pid = server.pid().to_string();
    command.args(["metrics", "--pid", &pid, "--listen", "127.0.0.1:0"]);
    let mut metrics = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    let out = metrics.0.stdout.as_mut().unwrap();
    BufReader::new(out).read_line(&mut line).unwrap();
    let target = line.trim().strip_prefix("metrics at http://").unwrap();
    let target = target.strip_suffix("/metrics").unwrap();
    let Some((_prometheus, address)) = prometheus(&world, target) else {
        return;
    };
    let load = "while :; do curl -sS --max-time 60 -o /dev/null http://10.78.0.2/a || exit 1; done";
    let mut load = Running(
        world
            .command("kernel", &["bash", "-c", load])
            .spawn()
            .unwrap(),
    );
    let begin = Instant::now();
    let accepted = "millstream_accepted_total";
    loop {
        let up = query(&address, "min_over_time(up[1m])");
        let scrapes = query(&address, "count_over_time(up[1m])").unwrap_or(0.0);
        if query(&address, accepted).is_some_and(|count| count >= ANSWERS as f64) && scrapes >= 5.0
        {
            assert_eq!(up, Some(1.0), "every scrape succeeds");
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{up:?}, {scrapes} scrapes");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(load.0.try_wait().unwrap().is_none(), "the load goes on");
    server.stop();
}
