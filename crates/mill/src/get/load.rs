//! A load: many requests on a given number of connections, a new request as soon as one ends.

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::GetOptions;
use super::exchange::{Exchange, ExchangeError, Progress, request_bytes};
use super::summary::Summary;
use crate::failure::Failure;
use crate::limits::READ_BYTES;
use crate::net::{Interest, Net, Ready};
use crate::output::print;

/// Interval at which the progress bar is updated and stalled requests are searched, in ns.
const LOOK_NS: u64 = 200_000_000;

/// One of the concurrent exchanges.
struct Slot<N: Net> {
    stream: N::Stream,
    interest: Interest,
    exchange: Exchange,
    start_ns: u64,
    progress_ns: u64,
}

struct Load<'a, N: Net> {
    net: &'a N,
    poll: N::Poll,
    address: SocketAddr,
    request: Vec<u8>,
    keep_alive: bool,
    stall_ns: u64,
    slots: Vec<Option<Slot<N>>>,
    /// Requests not yet begun.
    left: u64,
    busy: usize,
    summary: Summary,
    buffer: Vec<u8>,
    clock: Instant,
}

/// Runs the load and prints the summary.
pub fn load<N: Net>(net: &N, options: &GetOptions, address: SocketAddr) -> Result<(), Failure> {
    let requests = options
        .requests
        .unwrap_or(options.connections.unwrap_or(1) as u64);
    let connections = options
        .connections
        .unwrap_or(1)
        .min(usize::try_from(requests).unwrap_or(usize::MAX));
    let poll = net
        .poll()
        .map_err(|error| Failure::Run(error.to_string()))?;
    let summary = Summary::new(connections, options.keep_alive)
        .map_err(|error| Failure::Run(format!("histogram: {error}")))?;
    let mut load = Load {
        net,
        poll,
        address,
        request: request_bytes(&options.url, options.keep_alive),
        keep_alive: options.keep_alive,
        stall_ns: options.timeout * 1_000_000_000,
        slots: (0..connections).map(|_| None).collect(),
        left: requests,
        busy: 0,
        summary,
        buffer: vec![0; READ_BYTES],
        clock: Instant::now(),
    };
    let bar = progress_bar(options, requests);
    load.run(&bar)
        .map_err(|error| Failure::Run(error.to_string()))?;
    bar.finish_and_clear();
    load.summary.stack.extend(net.counters());
    let summary = load.summary;
    print(&match options.json {
        true => format!("{}\n", summary.to_json(load.clock.elapsed())),
        false => summary.to_text(load.clock.elapsed()),
    })?;
    if summary.failures() == 0 {
        Ok(())
    } else {
        Err(Failure::Reported)
    }
}

fn progress_bar(options: &GetOptions, requests: u64) -> ProgressBar {
    if options.quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = "{pos:>10} of {len} requests {bar:30} {per_sec}, {eta} left";
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(requests).with_style(style)
}

impl<N: Net> Load<'_, N> {
    fn run(&mut self, bar: &ProgressBar) -> io::Result<()> {
        for index in 0..self.slots.len() {
            self.begin(index);
        }
        let mut ready: Vec<Ready> = Vec::new();
        let mut look_ns = LOOK_NS;
        while self.busy > 0 {
            let timeout = Duration::from_nanos(LOOK_NS);
            self.net.wait(&mut self.poll, &mut ready, Some(timeout))?;
            for &Ready { token } in &ready {
                self.advance(token);
            }
            let now_ns = self.now_ns();
            if now_ns >= look_ns {
                look_ns = now_ns + LOOK_NS;
                self.give_up_stalled(now_ns);
                bar.set_position(self.summary.requests());
            }
        }
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    /// Begins requests in the slot until one is in progress or none is left.
    fn begin(&mut self, index: usize) {
        while self.left > 0 && self.slots[index].is_none() {
            self.left -= 1;
            let start_ns = self.now_ns();
            let opened = self.net.connect(self.address).and_then(|stream| {
                self.net
                    .register(&mut self.poll, &stream, index, Interest::Write)?;
                Ok(stream)
            });
            match opened {
                Ok(stream) => {
                    self.busy += 1;
                    self.slots[index] = Some(Slot {
                        stream,
                        interest: Interest::Write,
                        exchange: Exchange::new(true),
                        start_ns,
                        progress_ns: start_ns,
                    });
                }
                Err(error) => self
                    .summary
                    .fail(&ExchangeError::Connect(error).to_string()),
            }
        }
    }

    fn advance(&mut self, index: usize) {
        let now_ns = self.now_ns();
        let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        slot.progress_ns = now_ns;
        let mut sink = |_: &[u8]| Ok(());
        let result = slot.exchange.advance(
            self.net,
            &mut slot.stream,
            &self.request,
            &mut self.buffer,
            &mut sink,
        );
        match result {
            Ok(Progress::Wait(wanted)) if wanted == slot.interest => {}
            Ok(Progress::Wait(wanted)) => {
                slot.interest = wanted;
                let again = self
                    .net
                    .reregister(&mut self.poll, &slot.stream, index, wanted);
                if let Err(error) = again {
                    self.end(index, Some(&error.to_string()));
                }
            }
            Ok(Progress::Done { reusable }) => self.complete(index, reusable),
            Err(error) => self.end(index, Some(&error.to_string())),
        }
    }

    /// Handles a complete response.
    fn complete(&mut self, index: usize, reusable: bool) {
        let now_ns = self.now_ns();
        let Some(slot) = &mut self.slots[index] else {
            return;
        };
        let status = slot.exchange.head().map_or(0, |head| head.status);
        if !(200..300).contains(&status) {
            return self.end(index, Some(&format!("status {status}")));
        }
        self.summary
            .succeed(now_ns - slot.start_ns, slot.exchange.content_bytes());
        if !(reusable && self.keep_alive && self.left > 0) {
            return self.end(index, None);
        }
        self.left -= 1;
        slot.exchange = Exchange::new(false);
        slot.start_ns = now_ns;
        self.advance(index);
    }

    /// Ends the slot's connection and begins the next request in its place.
    fn end(&mut self, index: usize, failure: Option<&str>) {
        if let Some(cause) = failure {
            self.summary.fail(cause);
        }
        if self.slots[index].take().is_some() {
            self.busy -= 1;
        }
        self.begin(index);
    }

    fn give_up_stalled(&mut self, now_ns: u64) {
        for index in 0..self.slots.len() {
            let is_stalled = |slot: &Slot<N>| now_ns - slot.progress_ns > self.stall_ns;
            if self.slots[index].as_ref().is_some_and(is_stalled) {
                self.end(index, Some("timed out"));
            }
        }
    }
}
