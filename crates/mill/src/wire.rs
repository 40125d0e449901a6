//! `mill wire A B`: joins two wires through a bad one until it is stopped. The engine is
//! `packetio::bridge`.

use clap::Args;
use packetio::WireSpec;
use packetio::bridge::{Bridge, BridgeStats};
use packetio::fault::{FaultOptions, LineOptions};
use packetio::spec::set_line_key;

use crate::failure::Failure;
use crate::output::print;
use crate::stop::Stop;

/// Options of `mill wire`.
#[derive(Args, Clone, Debug)]
pub struct WireOptions {
    /// One end, such as tap:left or packet:veth0
    #[arg(value_name = "A")]
    pub a: WireSpec,
    /// The other end
    #[arg(value_name = "B")]
    pub b: WireSpec,
    /// Frames lost, as a share (0.01, 1%)
    #[arg(long, value_name = "SHARE")]
    pub loss: Option<String>,
    /// Frames that arrive twice, as a share
    #[arg(long, value_name = "SHARE")]
    pub dup: Option<String>,
    /// Frames that others overtake, as a share
    #[arg(long, value_name = "SHARE")]
    pub reorder: Option<String>,
    /// Frames with a bit flipped, as a share
    #[arg(long, value_name = "SHARE")]
    pub corrupt: Option<String>,
    /// How late each frame is (5ms, 100us)
    #[arg(long, value_name = "TIME")]
    pub delay: Option<String>,
    /// How much later at random
    #[arg(long, value_name = "TIME")]
    pub jitter: Option<String>,
    /// Bits per second (100mbit)
    #[arg(long, value_name = "RATE")]
    pub rate: Option<String>,
    /// Bytes that may queue for the rate (64kb)
    #[arg(long, value_name = "BYTES")]
    pub limit: Option<String>,
    /// Where the dice start: the same seed does the same to the same frames
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Only frames from A to B suffer
    #[arg(long)]
    pub one_way: bool,
    /// Print what passed as JSON
    #[arg(long)]
    pub json: bool,
}

/// Joins the wires until SIGINT or SIGTERM, then reports the traffic.
pub fn wire(options: &WireOptions) -> Result<(), Failure> {
    let line = line_options(options)?;
    let back = if options.one_way {
        LineOptions::default()
    } else {
        line
    };
    let faults = FaultOptions {
        seed: options.seed,
        tx: line,
        rx: back,
        ..FaultOptions::default()
    };
    let stop = Stop::on_signals().map_err(|error| Failure::Run(format!("signals: {error}")))?;
    let open = |spec: &WireSpec| {
        packetio::open(spec, 0).map_err(|error| Failure::Usage(error.to_string()))
    };
    let mut bridge = Bridge::new(open(&options.a)?, open(&options.b)?, &faults);
    print(&ready_line(options))?;
    let outcome = bridge.run(stop.fd());
    let said = print(&last_lines(options, &bridge.stats()));
    outcome.map_err(|error| Failure::Run(error.to_string()))?;
    said
}

fn line_options(options: &WireOptions) -> Result<LineOptions, Failure> {
    let mut line = LineOptions::default();
    for (key, value) in [
        ("loss", &options.loss),
        ("dup", &options.dup),
        ("reorder", &options.reorder),
        ("corrupt", &options.corrupt),
        ("delay", &options.delay),
        ("jitter", &options.jitter),
        ("rate", &options.rate),
        ("limit", &options.limit),
    ] {
        let Some(value) = value else { continue };
        set_line_key(&mut line, key, value)
            .map_err(|expected| Failure::Usage(format!("--{key} {value}: {expected}")))?;
    }
    Ok(line)
}

fn ready_line(options: &WireOptions) -> String {
    let (a, b) = (options.a.to_string(), options.b.to_string());
    if options.json {
        format!(
            "{}\n",
            serde_json::json!({"event": "ready", "a": a, "b": b})
        )
    } else {
        format!("joined {a} and {b}\n")
    }
}

fn last_lines(options: &WireOptions, stats: &BridgeStats) -> String {
    if !options.json {
        return format!("A to B: {}\nB to A: {}\n", stats.a_to_b, stats.b_to_a);
    }
    let direction = |stats: &packetio::bridge::DirectionStats| {
        let line = &stats.line;
        serde_json::json!({
            "rx_frames": stats.rx_frames, "rx_bytes": stats.rx_bytes,
            "tx_frames": stats.tx_frames, "tx_bytes": stats.tx_bytes,
            "completed": stats.completed, "too_long": stats.too_long + line.too_long,
            "lost": line.lost, "duplicated": line.duplicated, "reordered": line.reordered,
            "corrupted": line.corrupted, "queue_full": line.queue_full, "no_slot": line.no_slot,
        })
    };
    let (there, back) = (direction(&stats.a_to_b), direction(&stats.b_to_a));
    let line = serde_json::json!({"event": "stopped", "a_to_b": there, "b_to_a": back});
    format!("{line}\n")
}
