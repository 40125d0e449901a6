//! `mill get`: downloads a URL, or puts a load on a server.
//!
//! [`exchange`] is one request and its response on one connection. [`download`] makes one exchange
//! and writes its body into a file or to stdout. [`load`] makes many on many connections, and
//! [`summary`] reports their results.

mod download;
mod exchange;
mod load;
mod summary;

#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::http::url::Url;
use crate::limits::CLIENT_CONNECTIONS_MAX;
use crate::net::Net;
use crate::net::kernel::Kernel;
use crate::net::millstream::{self, Millstream};
use crate::net::options::{NetOptions, Wire};

/// Options of `mill get`.
#[derive(Args, Clone, Debug)]
pub struct GetOptions {
    /// URL to fetch
    #[arg(value_name = "URL")]
    pub url: Url,
    #[command(flatten)]
    pub net: NetOptions,
    /// Write to this file instead of stdout
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["requests", "connections"])]
    pub output: Option<PathBuf>,
    /// Write to a file with the name that the URL ends in
    #[arg(short = 'O', long, conflicts_with_all = ["output", "requests", "connections"])]
    pub remote_name: bool,
    /// Load: so many requests in all; what they bring is counted and thrown away
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// Load: so many connections at once
    #[arg(short = 'c', long, value_name = "N", value_parser = connections)]
    pub connections: Option<usize>,
    /// Load: keep connections alive; without it each request has its own
    #[arg(short = 'k', long)]
    pub keep_alive: bool,
    /// Seconds without a byte after which a request has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,
    /// Print what was seen as JSON: on stdout for a load, else on stderr
    #[arg(long)]
    pub json: bool,
    /// No progress bar
    #[arg(short, long)]
    pub quiet: bool,
}

fn connections(text: &str) -> Result<usize, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (1..=CLIENT_CONNECTIONS_MAX).contains(number));
    number.ok_or_else(|| format!("no number from 1 to {CLIENT_CONNECTIONS_MAX}"))
}

/// Downloads, or runs the load.
pub fn get(options: &GetOptions) -> Result<(), Failure> {
    options.net.check().map_err(Failure::Usage)?;
    let address = resolve(&options.url)?;
    match options.net.wire() {
        Wire::Kernel => get_over(&Kernel, options, address),
        Wire::Millstream(_) => {
            let runtime = millstream::runtime(&options.net)?;
            get_over(
                &Millstream::new(&runtime, 0).map_err(cannot)?,
                options,
                address,
            )
        }
    }
}

fn cannot(error: std::io::Error) -> Failure {
    Failure::Run(error.to_string())
}

fn get_over<N: Net>(net: &N, options: &GetOptions, address: SocketAddr) -> Result<(), Failure> {
    if options.requests.is_some() || options.connections.is_some() {
        load::load(net, options, address)
    } else {
        download::download(net, options, address)
    }
}

/// The URL's host as an address, by the system's resolver if it is a name.
fn resolve(url: &Url) -> Result<SocketAddr, Failure> {
    if let Ok(address) = url.host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, url.port));
    }
    let unknown = |cause: String| Failure::Usage(format!("{}: {cause}", url.host));
    let mut found = (url.host.as_str(), url.port)
        .to_socket_addrs()
        .map_err(|error| unknown(error.to_string()))?;
    found
        .next()
        .ok_or_else(|| unknown("has no address".to_owned()))
}
