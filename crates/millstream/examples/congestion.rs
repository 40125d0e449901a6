//! A congestion control of the program's own: `congestion ADD KEEP_PERCENT BYTES`. It is AIMD with
//! other numbers than Reno's: the window grows by ADD segments per round trip and keeps
//! KEEP_PERCENT of its size on congestion. Two contexts of this process transfer BYTES bytes with
//! it.

use std::error::Error;
use std::io::{ErrorKind, Read, Write};

use millstream::congestion_control::{
    AckSample, CongestionControl, PathReport, SenderView, State, Window,
};
use millstream::{Config, Runtime, TcpListener, TcpStream};

/// Additive increase, multiplicative decrease. `add` 1 and `keep_percent` 50 are Reno's values. The
/// window does not grow while the round trip exceeds twice the least one, which means a queue.
pub struct Aimd {
    /// Segments by which the window grows in a round trip.
    pub add: u32,
    /// The part of the window that is kept on congestion, in percent.
    pub keep_percent: u32,
}

/// Index of the state's word that is 1 while there is a queue.
const QUEUED: usize = 0;

impl CongestionControl for Aimd {
    fn ssthresh(&self, _: &mut State, _: &SenderView, window: &Window) -> u32 {
        let kept = u64::from(window.cwnd()) * u64::from(self.keep_percent) / 100;
        u32::try_from(kept).unwrap_or(u32::MAX)
    }

    fn on_path(&self, state: &mut State, _: &SenderView, _: &mut Window, path: &PathReport) {
        if let Some(rtt_us) = path.rtt_us {
            state[QUEUED] = u32::from(rtt_us / 2 > path.rtt_us_min);
        }
    }

    fn grow(&self, state: &mut State, _: &SenderView, window: &mut Window, ack: &AckSample) {
        let mut acked = ack.acked;
        if window.in_slow_start() {
            acked = window.slow_start(acked);
        }
        if acked > 0 && state[QUEUED] == 0 {
            window.grow_linearly(window.cwnd() / self.add.max(1), acked);
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [add, keep_percent, bytes] = words.as_slice() else {
        return Err("usage: congestion ADD KEEP_PERCENT BYTES".into());
    };
    let algorithm = Aimd {
        add: add.parse()?,
        keep_percent: keep_percent.parse()?,
    };
    let done = transfer(algorithm, bytes.parse()?)?;
    println!(
        "{} bytes by {}; the window came to {} segments",
        done.bytes, done.algorithm, done.cwnd
    );
    Ok(())
}

/// The result of a transfer.
#[derive(Debug)]
pub struct Done {
    /// Bytes that arrived.
    pub bytes: usize,
    /// The algorithm that the sender used at the end.
    pub algorithm: String,
    /// The sender's congestion window at the end, in segments.
    pub cwnd: u32,
}

/// Sends `bytes` bytes from one context to another with `algorithm`.
pub fn transfer(algorithm: Aimd, bytes: usize) -> Result<Done, Box<dyn Error>> {
    let mut config = Config::new("loopback:".parse()?);
    config.addresses.push("10.0.0.1/24".parse()?);
    // All connections of the runtime use the algorithm. For one socket:
    // `set_congestion_named("aimd")`.
    config.tcp.congestion = config.add_congestion_control("aimd", algorithm)?;
    config.contexts = 2;
    let runtime = Runtime::new(config)?;
    let (here, there) = (runtime.context(0)?, runtime.context(1)?);

    let listener = TcpListener::bind(&there, "10.0.0.2:80".parse()?)?;
    let mut sender = TcpStream::connect(&here, "10.0.0.2:80".parse()?)?;
    let (mut receiver, _) = listener.accept()?;
    sender.set_nonblocking(true);
    receiver.set_nonblocking(true);

    let (mut sent, mut received) = (0, 0);
    let mut buffer = vec![0; 64 * 1024];
    while received < bytes {
        let rest = buffer.len().min(bytes - sent);
        sent += or_none_yet(sender.write(&buffer[..rest]))?;
        here.turn()?;
        there.turn()?;
        received += or_none_yet(receiver.read(&mut buffer))?;
    }
    let info = sender.options().info()?.ok_or("the connection is gone")?;
    let name = sender.options().congestion().map_or("", |one| one.name());
    Ok(Done {
        bytes: received,
        algorithm: name.to_owned(),
        cwnd: info.tcp.snd_cwnd,
    })
}

/// Turns `WouldBlock` into 0.
fn or_none_yet(answer: std::io::Result<usize>) -> std::io::Result<usize> {
    match answer {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        answer => answer,
    }
}
