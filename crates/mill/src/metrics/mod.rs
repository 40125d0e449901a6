//! `mill metrics`: the values of all Millstream processes for Prometheus, over HTTP on a kernel
//! socket, into a file for node_exporter, or once to stdout.
//!
//! Owns the options and the HTTP server. `text` makes the page.

#[cfg(test)]
mod tests;
mod text;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;

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
}

/// Runs the command.
pub fn metrics(options: &MetricsOptions) -> Result<(), Failure> {
    let mut processes = match options.listen {
        Some(_) => Processes::find(None)?,
        None => Processes::find(options.pid)?,
    };
    match (&options.listen, &options.textfile) {
        (Some(address), _) => listen(*address, &mut processes, options.pid),
        (None, Some(file)) => loop {
            let page = text::for_text_file(&page(&mut processes, options.pid));
            write(file, &page)
                .map_err(|error| Failure::Run(format!("{}: {error}", file.display())))?;
            if options.interval == 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_secs(options.interval));
        },
        (None, None) => {
            // An error is ignored: stdout is closed.
            let _ = std::io::stdout().write_all(page(&mut processes, options.pid).as_bytes());
            Ok(())
        }
    }
}

fn page(processes: &mut Processes, pid: Option<u32>) -> String {
    let mut snapshots = processes.snapshots();
    snapshots.retain(|snapshot| pid.is_none_or(|pid| snapshot.pid == pid));
    text::open_metrics(snapshots)
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
fn listen(address: SocketAddr, processes: &mut Processes, pid: Option<u32>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Run(format!("{address}: {error}"));
    let listener = TcpListener::bind(address).map_err(failed)?;
    println!(
        "metrics at http://{}/metrics",
        listener.local_addr().map_err(failed)?
    );
    for stream in listener.incoming() {
        // An error of one client does not affect the others.
        let _ = stream.and_then(|stream| answer(stream, || page(processes, pid)));
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
