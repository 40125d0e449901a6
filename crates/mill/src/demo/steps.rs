//! The demo's steps. Each returns its result in a line, or the reason for its failure.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use serde_json::json;

use super::compare;
use super::report::{Outcome, Saw};
use super::world::{LARGE_BYTES, PAGE, SERVER, World, run};

type Step = fn(&World, bool) -> Outcome;

/// All steps, in order.
pub const STEPS: [(&str, Step); 8] = [
    ("ping", ping),
    ("curl, a page", curl_page),
    ("curl, 100 MB", curl_large),
    ("1,000 connections at once", thousand),
    ("wrk", wrk),
    ("ab", ab),
    ("server stops on SIGINT", stop),
    ("short connections, against the kernel", short_connections),
];

const CONNECTIONS: usize = 1_000;
const CLIENT_TIMEOUT: Duration = Duration::from_secs(20);

fn url(path: &str) -> String {
    format!("http://{SERVER}{path}")
}

fn ping(world: &World, _quick: bool) -> Outcome {
    let said = world.client(&["ping", "-n", "-c", "5", "-i", "0.2", "-W", "2", SERVER])?;
    let summary = line_with(&said, "packets transmitted")?;
    if !summary.contains(" 0% packet loss") {
        return Err(summary);
    }
    let times = said.lines().rev().find(|line| line.starts_with("rtt"));
    Ok(times.map_or(summary, str::to_owned).into())
}

fn curl_page(world: &World, _quick: bool) -> Outcome {
    let page = world.client(&["curl", "-sS", "--fail", "--max-time", "10", &url("/")])?;
    if page == PAGE {
        Ok(format!("{} bytes, as they are on disk", page.len()).into())
    } else {
        Err(format!("{} bytes that are not the page", page.len()))
    }
}

fn curl_large(world: &World, _quick: bool) -> Outcome {
    let download = world.download();
    let target = download.display().to_string();
    let limits = ["--fail", "--max-time", "120", "-w", "%{time_total}"];
    let (from, line) = (url("/large.bin"), ["curl", "-sS", "-o", &target]);
    let line: Vec<&str> = line
        .into_iter()
        .chain(limits)
        .chain([from.as_str()])
        .collect();
    let seconds: f64 = world
        .client(&line)?
        .trim()
        .parse()
        .map_err(|_| "curl did not say how long it took")?;
    let ours = hash(&world.documents().join("large.bin").display().to_string())?;
    let theirs = hash(&target)?;
    if ours != theirs {
        return Err(format!("sha256 {theirs} is not the file's {ours}"));
    }
    let rate = LARGE_BYTES as f64 / 1e6 / seconds;
    let line = format!("{rate:.0} MB/s, sha256 {}… on both sides", &ours[..16]);
    let values = json!({"bytes": LARGE_BYTES, "seconds": seconds, "sha256": ours});
    Ok(Saw { line, values })
}

fn hash(path: &str) -> Result<String, String> {
    let said = run(&["sha256sum", path])?;
    let hash = said
        .split_whitespace()
        .next()
        .filter(|hash| hash.len() == 64);
    hash.map(str::to_owned)
        .ok_or_else(|| format!("sha256sum said {said:?}"))
}

/// Opens all connections before it sends the first request, so that they exist at the same time.
fn thousand(world: &World, _quick: bool) -> Outcome {
    let namespace = world.client_namespace();
    let client = std::thread::spawn(move || {
        let file =
            File::open(&namespace).map_err(|error| format!("{}: {error}", namespace.display()))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|errno| format!("setns: {errno}"))?;
        thousand_from_here().map_err(|error| error.to_string())
    });
    client
        .join()
        .map_err(|_| "the client's thread ended badly".to_owned())?
}

fn thousand_from_here() -> std::io::Result<Saw> {
    let mut streams = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        let stream = TcpStream::connect((SERVER, 80))?;
        stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
        streams.push(stream);
    }
    for stream in &mut streams {
        write!(
            stream,
            "GET / HTTP/1.1\r\nHost: {SERVER}\r\nConnection: close\r\n\r\n"
        )?;
    }
    let mut answer = Vec::new();
    for stream in &mut streams {
        answer.clear();
        stream.read_to_end(&mut answer)?;
        if !answer.starts_with(b"HTTP/1.1 200 ") || !answer.ends_with(PAGE.as_bytes()) {
            return Err(std::io::Error::other("an answer that is not the page"));
        }
    }
    let line = format!("{CONNECTIONS} open together, {CONNECTIONS} pages");
    let values = json!({"connections": CONNECTIONS});
    Ok(Saw { line, values })
}

fn wrk(world: &World, quick: bool) -> Outcome {
    let duration = if quick { "-d2s" } else { "-d10s" };
    let said = world.client(&["wrk", "-t1", "-c64", duration, "--latency", &url("/")])?;
    for trouble in ["Socket errors", "Non-2xx"] {
        if let Ok(line) = line_with(&said, trouble) {
            return Err(line);
        }
    }
    let (rate, p99) = (
        number_after(&said, "Requests/sec:")?,
        line_with(&said, "99%")?,
    );
    if rate <= 0.0 {
        return Err("no request was answered".to_owned());
    }
    let p99 = p99.trim_start_matches("99%").trim();
    let line = format!("{rate:.0} requests/s over 64 connections, p99 {p99}");
    let values = json!({"connections": 64, "requests_per_second": rate, "p99": p99});
    Ok(Saw { line, values })
}

fn ab(world: &World, quick: bool) -> Outcome {
    let count = if quick { "5000" } else { "50000" };
    let said = world.client(&[
        "ab",
        "-q",
        "-l",
        "-s",
        "20",
        "-n",
        count,
        "-c",
        "50",
        &url("/"),
    ])?;
    let complete = number_after(&said, "Complete requests:")?;
    let failed = number_after(&said, "Failed requests:")?;
    if failed > 0.0 || said.contains("Non-2xx responses") || format!("{complete}") != count {
        return Err(format!("{complete} complete, {failed} failed of {count}"));
    }
    let rate = number_after(&said, "Requests per second:")?;
    let line = format!("{count} requests, one connection each, none failed, {rate:.0}/s");
    let values = json!({"requests": complete, "failed": failed, "requests_per_second": rate});
    Ok(Saw { line, values })
}

fn stop(world: &World, _quick: bool) -> Outcome {
    let last = world.stop_server()?;
    let said: serde_json::Value =
        serde_json::from_str(&last).map_err(|error| format!("{last:?}: {error}"))?;
    let count = |name: &str| {
        said["stats"][name]
            .as_u64()
            .ok_or_else(|| format!("{last:?}: no {name}"))
    };
    let (connections, requests) = (count("connections")?, count("requests")?);
    if connections < CONNECTIONS as u64 {
        return Err(format!("it counted {connections} connections"));
    }
    let line = format!("it had served {requests} requests on {connections} connections");
    let values = said["stats"].clone();
    Ok(Saw { line, values })
}

fn short_connections(world: &World, quick: bool) -> Outcome {
    let found = compare::compare(&world.documents(), quick)?;
    let (ratio, cpu_ratio) = (found.ratio(), found.cpu_ratio());
    let line = format!(
        "Millstream over memif: {:.0}/s, kernel over loopback: {:.0}/s; ratio {ratio:.1}, \
         by the server's CPU time {cpu_ratio:.1}",
        found.millstream.requests_per_second, found.kernel.requests_per_second
    );
    if ratio <= 1.0 {
        return Err(line);
    }
    let mut values = json!(found);
    values["ratio"] = json!(ratio);
    values["cpu_ratio"] = json!(cpu_ratio);
    Ok(Saw { line, values })
}

fn line_with(text: &str, part: &str) -> Result<String, String> {
    let line = text.lines().find(|line| line.contains(part));
    line.map(|line| line.trim().to_owned())
        .ok_or_else(|| format!("no line with {part:?} in what was printed"))
}

fn number_after(text: &str, label: &str) -> Result<f64, String> {
    let line = line_with(text, label)?;
    let rest = line.split_once(label).map_or("", |(_, rest)| rest);
    let word = rest.split_whitespace().next().unwrap_or_default();
    word.parse()
        .map_err(|_| format!("{line:?}: no number after {label:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_after_their_labels() {
        let said =
            "Complete requests:      5000\nFailed requests:        0\nRequests/sec:  17893.71\n";
        assert_eq!(number_after(said, "Complete requests:"), Ok(5000.0));
        assert_eq!(number_after(said, "Requests/sec:"), Ok(17893.71));
        assert!(number_after(said, "Transfer").is_err());
        assert!(number_after("Failed requests: none", "Failed requests:").is_err());
    }
}
