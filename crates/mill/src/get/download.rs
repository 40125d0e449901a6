//! One download into a file or to stdout. A file gets its name only when it is complete.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::GetOptions;
use super::exchange::{Exchange, Progress, request_bytes};
use crate::failure::Failure;
use crate::limits::READ_BYTES;
use crate::net::{Interest, Net};

const TOKEN: usize = 0;

/// The output of `--json`.
#[derive(Serialize)]
struct Seen<'a> {
    url: String,
    status: u16,
    bytes: u64,
    seconds: f64,
    file: Option<&'a Path>,
}

/// Fetches the URL.
pub fn download<N: Net>(net: &N, options: &GetOptions, address: SocketAddr) -> Result<(), Failure> {
    let mut target = Target::open(options)?;
    let start = Instant::now();
    let exchange = fetch(net, options, address, &mut target)
        .map_err(|cause| Failure::Run(format!("{}: {cause}", options.url)))?;
    target.finish()?;
    let status = exchange.head().map_or(0, |head| head.status);
    if options.json {
        let seen = Seen {
            url: options.url.to_string(),
            status,
            bytes: exchange.content_bytes(),
            seconds: start.elapsed().as_secs_f64(),
            file: target.path.as_deref(),
        };
        eprintln!("{}", serde_json::json!(seen));
    }
    if (200..300).contains(&status) {
        return Ok(());
    }
    Err(Failure::Run(format!("{}: status {status}", options.url)))
}

fn fetch<N: Net>(
    net: &N,
    options: &GetOptions,
    address: SocketAddr,
    target: &mut Target,
) -> Result<Exchange, String> {
    let text = |error: io::Error| error.to_string();
    let request = request_bytes(&options.url, false);
    let mut poll = net.poll().map_err(text)?;
    let mut stream = net
        .connect(address)
        .map_err(|error| format!("connect: {error}"))?;
    let mut interest = Interest::Write;
    net.register(&mut poll, &stream, TOKEN, interest)
        .map_err(text)?;
    let mut exchange = Exchange::new(true);
    let mut buffer = vec![0; READ_BYTES];
    let mut ready = Vec::new();
    let timeout = Duration::from_secs(options.timeout);
    let bar = progress_bar(options, target);
    loop {
        let start = Instant::now();
        net.wait(&mut poll, &mut ready, Some(timeout))
            .map_err(text)?;
        if ready.is_empty() {
            if start.elapsed() >= timeout {
                return Err(format!("nothing came for {} seconds", options.timeout));
            }
            continue;
        }
        let mut sink = |bytes: &[u8]| target.write(bytes);
        let progress = exchange
            .advance(net, &mut stream, &request, &mut buffer, &mut sink)
            .map_err(|error| error.to_string())?;
        show(&bar, &exchange);
        match progress {
            Progress::Done { .. } => break,
            Progress::Wait(wanted) if wanted == interest => {}
            Progress::Wait(wanted) => {
                interest = wanted;
                net.reregister(&mut poll, &stream, TOKEN, interest)
                    .map_err(text)?;
            }
        }
    }
    bar.finish_and_clear();
    Ok(exchange)
}

/// A progress bar on stderr, if that is a terminal.
fn progress_bar(options: &GetOptions, target: &Target) -> ProgressBar {
    if options.quiet || target.path.is_none() || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = "{bytes:>10} of {total_bytes} {bar:30} {bytes_per_sec}, {eta} left";
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::no_length().with_style(style)
}

fn show(bar: &ProgressBar, exchange: &Exchange) {
    if let Some(length) = exchange.head().and_then(|head| head.content_length) {
        bar.set_length(length);
    }
    bar.set_position(exchange.content_bytes());
}

/// The destination of the bytes.
struct Target {
    path: Option<PathBuf>,
    partial: Option<(PathBuf, File)>,
}

impl Target {
    fn open(options: &GetOptions) -> Result<Self, Failure> {
        let path = match (&options.output, options.remote_name) {
            (Some(path), _) => Some(path.clone()),
            (None, true) => {
                let name = options.url.file_name();
                let none =
                    || Failure::Usage(format!("{}: no file name at its end for -O", options.url));
                Some(PathBuf::from(name.ok_or_else(none)?))
            }
            (None, false) => None,
        };
        let Some(path) = path else {
            return Ok(Self {
                path: None,
                partial: None,
            });
        };
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(".part");
        let partial = path.with_file_name(name);
        let file = File::create(&partial)
            .map_err(|error| Failure::Usage(format!("{}: {error}", partial.display())))?;
        Ok(Self {
            path: Some(path),
            partial: Some((partial, file)),
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.partial {
            Some((_, file)) => file.write_all(bytes),
            None => io::stdout().write_all(bytes),
        }
    }

    fn finish(&mut self) -> Result<(), Failure> {
        let failed =
            |path: &Path, error: io::Error| Failure::Run(format!("{}: {error}", path.display()));
        let Some(path) = &self.path else {
            let stdout = Path::new("stdout");
            return io::stdout().flush().map_err(|error| failed(stdout, error));
        };
        if let Some((partial, _)) = self.partial.take() {
            std::fs::rename(&partial, path).map_err(|error| failed(path, error))?;
        }
        Ok(())
    }
}

impl Drop for Target {
    /// Removes an incomplete file.
    fn drop(&mut self) {
        if let Some((partial, _)) = self.partial.take() {
            let _ = std::fs::remove_file(partial);
        }
    }
}
