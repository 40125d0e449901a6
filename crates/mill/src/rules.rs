//! `mill rules`: the counters of running processes' packet rules.

use clap::Args;
use millstream::rules::{RuleCounts, RuleStep};
use observe::client::Client;
use observe::message::kind;
use observe::place;
use rustix::io::Errno;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::print;
use crate::processes::why;

/// Options of `mill rules`.
#[derive(Args, Clone, Debug)]
pub struct RulesOptions {
    /// Only this process
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One rule of one context.
#[derive(Serialize)]
struct Row {
    process: u32,
    context: u64,
    /// The rule's number, from 1 on.
    number: usize,
    name: Option<String>,
    packets: u64,
    bytes: u64,
    refused: u64,
}

/// Runs the command.
pub fn rules(options: &RulesOptions) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let mut is_found = false;
    let agents = place::agents();
    for (socket, errno) in &agents.unseen {
        tracing::warn!("{}: {}", socket.display(), why(*errno));
    }
    for client in agents.agents {
        let pid = client.pid();
        if options.pid.is_some_and(|only| only != pid) {
            continue;
        }
        match ask(client, &mut rows) {
            Ok(()) => is_found = true,
            Err(errno) if options.pid.is_some() => {
                return Err(Failure::Run(format!("process {pid}: {}", why(errno))));
            }
            Err(errno) => tracing::warn!("process {pid}: {}", why(errno)),
        }
    }
    if let (Some(pid), false) = (options.pid, is_found) {
        let why = format!("process {pid}: no socket of Millstream's that this user may use");
        return Err(Failure::Run(why));
    }
    match options.json {
        true => print(&format!("{}\n", serde_json::json!(rows))),
        false => print(&table(&rows)),
    }
}

/// Asks all contexts of a process, in bounded steps.
fn ask(mut client: Client, rows: &mut Vec<Row>) -> Result<(), Errno> {
    let process = client.pid();
    for one in client.statistics()?.contexts(&[]) {
        let mut next = 0_u32;
        loop {
            let answer = client.ask(one.slot, kind::RULES, &next.to_le_bytes())?;
            let step = RuleStep::read(&answer.body).ok_or(Errno::PROTO)?;
            let numbers = next as usize + 1..;
            rows.extend(numbers.zip(step.rows).map(|(number, counts)| {
                let RuleCounts {
                    name,
                    packets,
                    bytes,
                    refused,
                } = counts;
                Row {
                    process,
                    context: one.context,
                    number,
                    name,
                    packets,
                    bytes,
                    refused,
                }
            }));
            // The rules may have been replaced by fewer ones meanwhile.
            if step.next >= step.total || step.next <= next {
                break;
            }
            next = step.next;
        }
    }
    Ok(())
}

fn table(rows: &[Row]) -> String {
    let head = ["process", "context", "rule", "packets", "bytes", "refused"];
    let line = |cells: [String; 6], name: &str| {
        let [process, context, number, packets, bytes, refused] = cells;
        let left = format!("{process:>8} {context:>7} {number:>5}");
        let counts = format!("{packets:>14} {bytes:>16} {refused:>14}");
        format!("{left} {counts}  {name}").trim_end().to_owned() + "\n"
    };
    let body = rows.iter().map(|row| {
        let cells = [
            row.process.to_string(),
            row.context.to_string(),
            row.number.to_string(),
            row.packets.to_string(),
            row.bytes.to_string(),
            row.refused.to_string(),
        ];
        line(cells, row.name.as_deref().unwrap_or_default())
    });
    std::iter::once(line(head.map(str::to_owned), "name"))
        .chain(body)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_a_line_for_each_rule() {
        let row = Row {
            process: 7,
            context: 0,
            number: 2,
            name: None,
            packets: 3,
            bytes: 120,
            refused: 1,
        };
        let text = table(&[row]);
        let words = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let lines: Vec<_> = text.lines().map(words).collect();
        assert_eq!(lines[0].last().map(String::as_str), Some("name"));
        assert_eq!(lines[1], ["7", "0", "2", "3", "120", "1"]);
    }
}
