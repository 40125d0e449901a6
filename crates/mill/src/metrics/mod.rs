//! `mill metrics`: the values of all Millstream processes for Prometheus, over HTTP on a kernel
//! socket, into a file for node_exporter, or once to stdout.
//!
//! Owns the options and the HTTP server. `text` makes the page, `services` asks `mill mux`.

mod services;
#[cfg(test)]
mod tests;
mod text;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use packetio::mux::SOCKET_PATH_DEFAULT;

use self::services::Service;
use crate::failure::Failure;
use crate::limits::{SCRAPE_HEAD_BYTES_MAX, SCRAPE_MS_MAX};
use crate::processes::Processes;

/// Options of `mill metrics`.
#[derive(Args, Clone, Debug)]
pub struct MetricsOptions {
    /// Serve them at http://ADDR/metrics
    #[arg(long, value_name = "ADDR", conflicts_with = "textfile")]
    listen: Option<SocketAddr>,
    /// Write them to a file for node_exporter, again and again
    #[arg(long, value_name = "FILE")]
    textfile: Option<PathBuf>,
    /// Seconds between two files; 0 writes one
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    interval: u64,
    /// Only this process
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Also the `mill mux` that listens there; may be repeated. Without it the one at the default
    /// path, if there is one and no --pid
    #[arg(long, value_name = "PATH")]
    mux: Vec<String>,
}

/// Runs the command.
pub fn metrics(options: &MetricsOptions) -> Result<(), Failure> {
    let mut processes = match options.listen {
        Some(_) => Processes::find(None)?,
        None => Processes::find(options.pid)?,
    };
    let mut bytes = 0;
    match (&options.listen, &options.textfile) {
        (Some(address), _) => listen(*address, &mut processes, options),
        (None, Some(file)) => loop {
            let page = page(&mut processes, options, bytes);
            bytes = page.len();
            write(file, &text::for_text_file(&page))
                .map_err(|error| Failure::Run(format!("{}: {error}", file.display())))?;
            if options.interval == 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_secs(options.interval));
        },
        (None, None) => {
            // An error is ignored: stdout is closed.
            let _ = std::io::stdout().write_all(page(&mut processes, options, bytes).as_bytes());
            Ok(())
        }
    }
}

/// The page. `bytes`: the length of the one before.
fn page(processes: &mut Processes, options: &MetricsOptions, bytes: usize) -> String {
    let mut snapshots = processes.snapshots();
    let pid = options.pid;
    snapshots.retain(|snapshot| pid.is_none_or(|pid| snapshot.pid == pid));
    let services = match (&options.mux[..], pid) {
        ([], Some(_)) => Vec::new(),
        ([], None) => Service::ask(SOCKET_PATH_DEFAULT, false)
            .into_iter()
            .collect(),
        (named, _) => named
            .iter()
            .filter_map(|path| Service::ask(path, true))
            .collect(),
    };
    text::open_metrics(snapshots, services, bytes)
}

/// Replaces the file atomically: a reader sees the old or the new one.
fn write(file: &Path, page: &str) -> std::io::Result<()> {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let new = PathBuf::from(name);
    std::fs::write(&new, page)?;
    std::fs::rename(&new, file)
}

/// Serves one scrape at a time. A slow client is dropped.
fn listen(
    address: SocketAddr,
    processes: &mut Processes,
    options: &MetricsOptions,
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Run(format!("{address}: {error}"));
    let listener = TcpListener::bind(address).map_err(failed)?;
    println!(
        "metrics at http://{}/metrics",
        listener.local_addr().map_err(failed)?
    );
    let mut bytes = 0;
    for stream in listener.incoming() {
        let made = || {
            let page = page(processes, options, bytes);
            bytes = page.len();
            page
        };
        // An error of one client does not affect the others.
        let _ = stream.and_then(|stream| answer(stream, made));
    }
    Ok(())
}

/// Answers one request.
fn answer(mut stream: TcpStream, page: impl FnOnce() -> String) -> std::io::Result<()> {
    let end = Instant::now() + Duration::from_millis(SCRAPE_MS_MAX);
    stream.set_write_timeout(Some(Duration::from_millis(SCRAPE_MS_MAX)))?;
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() > SCRAPE_HEAD_BYTES_MAX {
            return Ok(());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut bytes)? {
            0 => return Ok(()),
            read => head.extend_from_slice(&bytes[..read]),
        }
    }
    let (status, kind, body) = match target(&head) {
        Some("/metrics" | "/") => ("200 OK", text::CONTENT_TYPE, page()),
        Some(_) => ("404 Not Found", "text/plain", "see /metrics\n".to_owned()),
        None => (
            "405 Method Not Allowed",
            "text/plain",
            "GET only\n".to_owned(),
        ),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
}

/// The path of a GET request.
fn target(head: &[u8]) -> Option<&str> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let path = std::str::from_utf8(line).ok()?.strip_prefix("GET ")?;
    path.split([' ', '?']).next()
}
