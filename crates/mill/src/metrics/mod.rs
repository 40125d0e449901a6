//! `mill metrics`: the values of all Millstream processes for Prometheus, over HTTP on a kernel
//! socket, into a file for node_exporter, or once to stdout.
//!
//! Owns the options. `text` makes the page, `services` asks `mill mux`, `server` answers scrapes.

mod server;
mod services;
#[cfg(test)]
mod tests;
mod text;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use packetio::mux::SOCKET_PATH_DEFAULT;

use self::services::Service;
use crate::failure::Failure;
use crate::limits::SCRAPE_MS_MAX;
use crate::output::print;
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
        (None, None) => print(&page(&mut processes, options, bytes)),
    }
}

/// The page. `bytes`: the length of the one before.
fn page(processes: &mut Processes, options: &MetricsOptions, bytes: usize) -> String {
    let mut snapshots = processes.snapshots();
    processes.warn_of_unseen();
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

/// Serves the page over HTTP.
fn listen(
    address: SocketAddr,
    processes: &mut Processes,
    options: &MetricsOptions,
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Run(format!("{address}: {error}"));
    let listener = TcpListener::bind(address).map_err(failed)?;
    let place = listener.local_addr().map_err(failed)?;
    print(&format!("metrics at http://{place}/metrics\n"))?;
    let mut bytes = 0;
    let patience = Duration::from_millis(SCRAPE_MS_MAX);
    let served = server::serve(&listener, patience, || {
        let page = page(processes, options, bytes);
        bytes = page.len();
        page
    });
    served.map_err(failed)
}
