//! `mill serve`: an HTTP/1.1 server of a directory. One worker per context, sharing nothing.
//!
//! ```text
//! worker ─ connection ─ http::server     bytes → requests
//!        │            └ answer           request, document → head and body
//!        ├ documents                     path → document
//!        ├ file_buffer                   bytes of a file that are not sent yet
//!        └ timeouts
//! ```

mod answer;
mod connection;
mod documents;
mod file_buffer;
mod log;
mod stats;
mod timeouts;
mod worker;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

use clap::Args;
use packetio::Backend;

use self::documents::Documents;
use self::stats::Stats;
use self::worker::Worker;
use crate::failure::Failure;
use crate::limits::{BACKLOG_DEFAULT, CONNECTIONS_MAX_DEFAULT};
use crate::net::Net;
use crate::net::kernel::Kernel;
use crate::net::millstream::{self, Millstream};
use crate::net::options::{NetOptions, Wire};
use crate::stop::Stop;

/// Options of `mill serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeOptions {
    /// The directory to serve
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// The wire and our addresses.
    #[command(flatten)]
    pub net: NetOptions,
    /// The port to listen on, at each of our addresses
    #[arg(long, value_name = "PORT", default_value_t = 80, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Connections that wait to be accepted, per context
    #[arg(long, value_name = "N", default_value_t = BACKLOG_DEFAULT)]
    pub backlog: usize,
    /// Connections per context; at the limit accepting stops until one leaves
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS_MAX_DEFAULT)]
    pub connections_max: usize,
    /// Say that it is ready, and at the end what was counted, as lines of JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// A message from a worker thread.
enum News {
    Ready,
    Ended(io::Result<Stats>),
}

/// Serves until SIGINT or SIGTERM.
pub fn serve(options: &ServeOptions) -> Result<(), Failure> {
    options.net.check().map_err(Failure::Usage)?;
    let directory = &options.directory;
    Documents::open(directory)
        .map_err(|error| Failure::Usage(format!("{}: {error}", directory.display())))?;
    match options.net.wire() {
        Wire::Kernel => serve_over(options, &|_| Ok(Kernel)),
        Wire::Millstream(_) => {
            let runtime = millstream::runtime(&options.net)?;
            serve_over(options, &|index| Millstream::new(&runtime, index))
        }
    }
}

/// Serves with the transports that `net_of` makes, one on each worker's thread.
pub fn serve_over<N: Net>(
    options: &ServeOptions,
    net_of: &(dyn Fn(usize) -> io::Result<N> + Sync),
) -> Result<(), Failure> {
    let stop = Stop::on_signals().map_err(|error| Failure::Run(format!("signals: {error}")))?;
    let contexts = usize::from(options.net.contexts);
    let (tell, news) = mpsc::channel();
    thread::scope(|scope| {
        for index in 0..contexts {
            let tell = tell.clone();
            let stop = &stop;
            scope.spawn(move || {
                let result = work(options, net_of, index, stop, &tell);
                // An error means that serving has ended.
                let _ = tell.send(News::Ended(result));
            });
        }
        let outcome = follow(options, contexts, &news, &stop);
        stop.raise();
        outcome
    })
}

/// Advice against the error of a listener on this wire.
fn hint(wire: &Wire, error: io::ErrorKind) -> &'static str {
    match wire {
        Wire::Millstream(spec)
            if error == io::ErrorKind::PermissionDenied
                && matches!(spec.backend, Backend::Mux(_)) =>
        {
            " (`mill mux --allow` says who may have which port)"
        }
        _ => "",
    }
}

fn work<N: Net>(
    options: &ServeOptions,
    net_of: &(dyn Fn(usize) -> io::Result<N> + Sync),
    index: usize,
    stop: &Stop,
    tell: &mpsc::Sender<News>,
) -> io::Result<Stats> {
    let net = net_of(index)?;
    let listen = |address: SocketAddr| {
        let listener = net.listen(address, options.backlog);
        listener.map_err(|error| {
            let hint = hint(options.net.wire(), error.kind());
            io::Error::new(error.kind(), format!("{address}: {error}{hint}"))
        })
    };
    let addresses = options.net.listen_addresses(options.port);
    let listeners: io::Result<Vec<_>> = addresses.into_iter().map(listen).collect();
    let documents = Documents::open(&options.directory)?;
    let worker = Worker::new(net, listeners?, documents, options.connections_max)?;
    let _ = tell.send(News::Ready);
    worker.run(stop.fd())
}

/// Reports when all workers are ready, waits for their ends, and stops the others when one fails.
fn follow(
    options: &ServeOptions,
    contexts: usize,
    news: &mpsc::Receiver<News>,
    stop: &Stop,
) -> Result<(), Failure> {
    let (mut ready, mut ended) = (0, 0);
    let mut stats = Stats::default();
    let mut failure = None;
    while ended < contexts {
        match news.recv() {
            Ok(News::Ready) => {
                ready += 1;
                if ready == contexts {
                    say_ready(options);
                }
            }
            Ok(News::Ended(result)) => {
                ended += 1;
                match result {
                    Ok(counted) => stats.add(&counted),
                    // An error before serving has begun is due to the options.
                    Err(error) if ready < contexts => {
                        failure = Some(Failure::Usage(error.to_string()))
                    }
                    Err(error) => failure = Some(Failure::Run(error.to_string())),
                }
                stop.raise();
            }
            Err(mpsc::RecvError) => break,
        }
    }
    match failure {
        Some(failure) => Err(failure),
        None => {
            say_stopped(options, &stats);
            Ok(())
        }
    }
}

fn say_ready(options: &ServeOptions) {
    let addresses = options.net.listen_addresses(options.port);
    let directory = options.directory.display().to_string();
    let line = if options.json {
        serde_json::json!({"event": "ready", "addresses": addresses, "directory": directory})
            .to_string()
    } else {
        let urls: Vec<String> = addresses
            .iter()
            .map(|address| format!("http://{address}/"))
            .collect();
        format!("serving {directory} on {}", urls.join(" and "))
    };
    say(&line);
}

fn say_stopped(options: &ServeOptions, stats: &Stats) {
    let line = if options.json {
        serde_json::json!({"event": "stopped", "stats": stats}).to_string()
    } else {
        let Stats {
            connections,
            requests,
            bytes_sent,
            ..
        } = stats;
        format!("stopped after {connections} connections, {requests} requests, {bytes_sent} bytes")
    };
    say(&line);
}

/// Prints a line. An error is ignored: the parent may have closed our stdout.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
