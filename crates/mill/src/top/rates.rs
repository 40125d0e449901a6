//! Rows of `mill top`: the rates of a context between two looks, and their totals for a process.

use std::collections::HashMap;

use observe::reader::ContextValues;
use serde::Serialize;

use super::Sort;
use crate::processes::{Snapshot, is_drop};

/// The rates between two looks of a context with its first port, of a port behind the first, or of
/// a process with several contexts.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub process: u32,
    pub command: String,
    /// The context's number; the number of contexts in the row of a process.
    pub context: u64,
    /// The wire; empty in the row of a process.
    pub port: String,
    /// The row is that of a port behind the first, and only has packets, bits and drops.
    pub is_behind_first: bool,
    /// The row is the total of a process: sums, the fullest pool, and mean shares of the time.
    pub is_total: bool,
    /// Slot of the context, which contexts of the same number differ by.
    #[serde(skip)]
    pub slot: u16,
    pub connections_per_s: f64,
    pub sockets: u64,
    pub rx_packets_per_s: f64,
    pub tx_packets_per_s: f64,
    pub rx_bits_per_s: f64,
    pub tx_bits_per_s: f64,
    pub retransmissions_per_s: f64,
    pub drops_per_s: f64,
    /// Use of the fullest pool, from 0 to 1.
    pub pool_fill: f64,
    /// Shares of the time, from 0 to 1.
    pub busy: f64,
    pub spinning: f64,
    pub asleep: f64,
}

/// A row for each context that exists in both looks, and one for each process with several.
pub fn rows(before: &[Snapshot], after: &[Snapshot]) -> Vec<Row> {
    let mut all = Vec::new();
    for now in after {
        let is_same = |one: &&Snapshot| one.pid == now.pid && one.start_ns == now.start_ns;
        let Some(then) = before.iter().find(is_same) else {
            continue;
        };
        let mut rows = Vec::new();
        for context in &now.contexts {
            let earlier = then.contexts.iter().find(|one| one.slot == context.slot);
            rows.extend(earlier.map(|earlier| row((then, earlier), (now, context))));
        }
        all.extend(total(&rows));
        all.append(&mut rows);
    }
    all
}

/// The total of a process's rows; `None` if it has one context, whose row says the same.
fn total(rows: &[Row]) -> Option<Row> {
    let contexts: Vec<&Row> = rows.iter().filter(|row| !row.is_behind_first).collect();
    let [first, _, ..] = contexts[..] else {
        return None;
    };
    let sum = |of: fn(&Row) -> f64| rows.iter().map(of).sum::<f64>();
    let mean = |of: fn(&Row) -> f64| {
        let all = contexts.iter().map(|row| of(row));
        all.sum::<f64>() / contexts.len() as f64
    };
    Some(Row {
        process: first.process,
        command: first.command.clone(),
        context: contexts.len() as u64,
        port: String::new(),
        is_behind_first: false,
        is_total: true,
        slot: 0,
        connections_per_s: sum(|row| row.connections_per_s),
        sockets: rows.iter().map(|row| row.sockets).sum(),
        rx_packets_per_s: sum(|row| row.rx_packets_per_s),
        tx_packets_per_s: sum(|row| row.tx_packets_per_s),
        rx_bits_per_s: sum(|row| row.rx_bits_per_s),
        tx_bits_per_s: sum(|row| row.tx_bits_per_s),
        retransmissions_per_s: sum(|row| row.retransmissions_per_s),
        drops_per_s: sum(|row| row.drops_per_s),
        pool_fill: rows.iter().map(|row| row.pool_fill).fold(0.0, f64::max),
        busy: mean(|row| row.busy),
        spinning: mean(|row| row.spinning),
        asleep: mean(|row| row.asleep),
    })
}

type Look<'a> = (&'a Snapshot, &'a ContextValues);

fn row(then: Look<'_>, now: Look<'_>) -> Row {
    let (snapshot, context) = now;
    let copied_ns = context.updated_ns.saturating_sub(then.1.updated_ns);
    // The values of a context that did not answer are the old ones, so all rates are zero.
    let seconds = (copied_ns as f64 / 1e9).max(1e-3);
    let grown = |name: &str| {
        let (now, then) = (now.0.number(now.1, name), then.0.number(then.1, name));
        now.saturating_sub(then) as f64
    };
    let rate = |name: &str| grown(name) / seconds;
    let drops = |(snapshot, context): Look<'_>| snapshot.sum(context, is_drop);
    let times = ["time_busy", "time_spinning", "time_asleep"].map(grown);
    let time = times.iter().sum::<f64>().max(1.0);
    let fill = |used: &str, limit: &str| {
        let limit = snapshot.number(context, limit).max(1) as f64;
        snapshot.number(context, used) as f64 / limit
    };
    Row {
        process: snapshot.pid,
        command: snapshot.command.clone(),
        context: context.context,
        port: context.port.clone(),
        is_behind_first: context.behind_first.is_some(),
        is_total: false,
        slot: context.behind_first.map_or(context.slot, |one| one.owner),
        connections_per_s: rate("accepted") + rate("connected"),
        sockets: snapshot.number(context, "sockets_in_use"),
        rx_packets_per_s: rate("rx_frames"),
        tx_packets_per_s: rate("tx_frames"),
        rx_bits_per_s: 8.0 * rate("rx_bytes"),
        tx_bits_per_s: 8.0 * rate("tx_bytes"),
        retransmissions_per_s: rate("segments_retransmitted"),
        drops_per_s: drops(now).saturating_sub(drops(then)) as f64 / seconds,
        pool_fill: fill("sockets_in_use", "sockets_limit")
            .max(fill("small_chunks_in_use", "small_chunks_limit"))
            .max(fill("large_chunks_in_use", "large_chunks_limit")),
        busy: times[0] / time,
        spinning: times[1] / time,
        asleep: times[2] / time,
    }
}

/// Sorts by the column, the largest first or last. Processes are sorted by their totals, then the
/// contexts of each. A process's total stays above its contexts, and ports stay below theirs.
pub fn sort(rows: &mut [Row], by: Sort, is_reversed: bool) {
    let key = |row: &Row| match by {
        Sort::Process => -f64::from(row.process),
        Sort::Connections => row.connections_per_s,
        Sort::Packets => row.rx_packets_per_s + row.tx_packets_per_s,
        Sort::Bits => row.rx_bits_per_s + row.tx_bits_per_s,
        Sort::Retransmissions => row.retransmissions_per_s,
        Sort::Drops => row.drops_per_s,
        Sort::Pools => row.pool_fill,
        Sort::Busy => row.busy,
    };
    let (mut processes, mut contexts) = (HashMap::new(), HashMap::new());
    for row in rows.iter().filter(|row| !row.is_behind_first) {
        match row.is_total {
            true => processes.insert(row.process, key(row)),
            false => contexts.insert((row.process, row.slot), key(row)),
        };
    }
    // A process without a total has one context.
    for ((process, _), key) in &contexts {
        processes.entry(*process).or_insert(*key);
    }
    let of_process = |row: &Row| processes.get(&row.process).copied().unwrap_or(0.0);
    let of_context = |row: &Row| {
        let place = (row.process, row.slot);
        contexts.get(&place).copied().unwrap_or(0.0)
    };
    let larger_first = |a: f64, b: f64| match is_reversed {
        true => a.total_cmp(&b),
        false => b.total_cmp(&a),
    };
    // A stable sort keeps ports behind the first in their order.
    rows.sort_by(|a, b| {
        larger_first(of_process(a), of_process(b))
            .then(a.process.cmp(&b.process))
            .then(b.is_total.cmp(&a.is_total))
            .then_with(|| larger_first(of_context(a), of_context(b)))
            .then(a.slot.cmp(&b.slot))
            .then(a.is_behind_first.cmp(&b.is_behind_first))
    });
}

/// The table's header, as wide as its rows.
pub const HEAD: &str =
    "    PID COMMAND  CTX CONN/S  SOCKS  PKT/S  BIT/S RETR/S DROP/S POOL BSY SPN SLP";

/// A row of at most 80 columns.
pub fn line(row: &Row) -> String {
    // A port behind the first has its name in place of the command.
    let name = match row.is_behind_first {
        true => format!(
            "+{}",
            row.port
                .split_once(':')
                .map_or(&*row.port, |(_, name)| name)
        ),
        false => row.command.clone(),
    };
    // The row of a process has the number of its contexts, such as `x16`.
    let context = match row.is_total {
        true => format!("x{}", row.context),
        false => row.context.to_string(),
    };
    let command: String = name.chars().take(8).collect();
    let percent = |share: f64| (share * 100.0).round().min(100.0);
    format!(
        "{:>7} {command:<8} {:>3} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>3}% {:>3} {:>3} {:>3}",
        row.process,
        context,
        short(row.connections_per_s),
        short(row.sockets as f64),
        short(row.rx_packets_per_s + row.tx_packets_per_s),
        short(row.rx_bits_per_s + row.tx_bits_per_s),
        short(row.retransmissions_per_s),
        short(row.drops_per_s),
        percent(row.pool_fill),
        percent(row.busy),
        percent(row.spinning),
        percent(row.asleep),
    )
}

/// The header and the rows, for standard output.
pub fn table(rows: &[Row]) -> String {
    let lines = rows.iter().map(|row| line(row) + "\n");
    format!("{HEAD}\n{}", lines.collect::<String>())
}

/// A number in at most five characters: `0`, `12.3`, `4.56k`, `789M`.
pub fn short(number: f64) -> String {
    let (mut scaled, mut unit) = (number, "");
    for next in ["k", "M", "G", "T"] {
        if scaled < 999.5 {
            break;
        }
        (scaled, unit) = (scaled / 1000.0, next);
    }
    let digits = match scaled {
        _ if unit.is_empty() && scaled.fract() == 0.0 => 0,
        scaled if scaled < 9.995 => 2,
        scaled if scaled < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.digits$}{unit}")
}
