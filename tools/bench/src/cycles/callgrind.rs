//! Instructions of a run, counted by `valgrind --tool=callgrind`, in all and by function.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::frame::process;

/// The instructions of a run.
#[derive(Debug, Default)]
pub struct Counted {
    pub instructions: u64,
    pub transactions: u64,
    pub segments: u64,
    /// Bursts with other frames than the load asks for; 0 for a load without bursts.
    pub uneven_bursts: u64,
    /// Instructions of each function alone, without the functions that it calls.
    pub functions: HashMap<String, u64>,
}

/// Fields of the benchmark's output that are read here.
#[derive(Deserialize)]
struct Ran {
    transactions_all: u64,
    segments: u64,
    #[serde(default)]
    uneven_bursts: u64,
}

/// The program to run under callgrind.
pub struct Load<'a> {
    /// The benchmark, which says how many transactions and segments there were.
    pub command: &'a [&'a str],
    /// The benchmark's options.
    pub words: &'a [String],
    /// Only what happens within functions of this name counts.
    pub within: Option<String>,
    /// Variables of the environment.
    pub variables: &'a [(&'a str, &'a str)],
}

/// Counts the instructions of a load.
pub fn count(load: &Load<'_>) -> Result<Counted, String> {
    let file = std::env::temp_dir().join(format!("mst-{}-callgrind.out", std::process::id()));
    let counted = count_into(&file, load);
    let _ = std::fs::remove_file(&file);
    counted
}

fn count_into(file: &Path, load: &Load<'_>) -> Result<Counted, String> {
    let output = Command::new("valgrind")
        .args(["-q", "--tool=callgrind"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .args(
            load.within
                .iter()
                .map(|name| format!("--toggle-collect={name}")),
        )
        .arg(process::ourselves()?)
        .args(load.command)
        .args(load.words)
        // The environment lies on the program's stack and must not change the counts.
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .envs(load.variables.iter().copied())
        .output()
        .map_err(|error| format!("valgrind: {error}; `cargo xtask setup` installs it"))?;
    if !output.status.success() {
        let cause = String::from_utf8_lossy(&output.stderr);
        return Err(format!("valgrind: {}: {}", output.status, cause.trim()));
    }
    let ran: Ran = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("bench {}: {error}", load.command.join(" ")))?;
    let profile =
        std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut counted = parse(&profile);
    counted.transactions = ran.transactions_all;
    counted.segments = ran.segments;
    counted.uneven_bursts = ran.uneven_bursts;
    if counted.instructions == 0 {
        return Err(format!("{}: no total in it", file.display()));
    }
    Ok(counted)
}

/// Reads callgrind's profile format: names are written out once and numbered, costs are `POSITION
/// COUNT`, and the line after `calls=` is the callee's.
fn parse(profile: &str) -> Counted {
    let mut counted = Counted::default();
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut current = "";
    let mut is_call = false;
    for line in profile.lines() {
        if let Some(rest) = line
            .strip_prefix("fn=")
            .or_else(|| line.strip_prefix("cfn="))
        {
            let (number, name) = rest.split_once(' ').unwrap_or((rest, ""));
            if !name.is_empty() {
                names.insert(number, name);
            }
            if line.starts_with("fn=") {
                current = names.get(number).copied().unwrap_or("");
            }
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if let Some(total) = line.strip_prefix("totals: ") {
            counted.instructions = total.trim().parse().unwrap_or(0);
        } else if is_cost(line)
            && !std::mem::take(&mut is_call)
            && let Some(cost) = line
                .split(' ')
                .nth(1)
                .and_then(|cost| cost.parse::<u64>().ok())
        {
            *counted.functions.entry(current.to_owned()).or_default() += cost;
        }
    }
    counted
}

/// True for a line with a position (absolute, or relative to the last one) and a count.
fn is_cost(line: &str) -> bool {
    line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_get_what_they_take_themselves() {
        let profile = "events: Ir\nfn=(1) main\n10 5\n+1 7\ncfn=(2) inner\ncalls=3 20\n+2 100\n\nfn=(2)\n20 90\n* 10\n\nfn=(1)\n30 1\ntotals: 113\n";
        let counted = parse(profile);
        assert_eq!(counted.instructions, 113);
        assert_eq!(counted.functions["main"], 13);
        assert_eq!(counted.functions["inner"], 100);
    }
}
