//! The shell commands of a script, as far as they concern a stack: settings.
//!
//! Nothing is executed. `sysctl`, writes to `/proc/sys` and `/sys/module/*/parameters`, route
//! metrics and the suites' own helpers become [`Effect`]s. Everything else is reported as ignored.
//! Lists, conditions and `exit` are followed as far as statuses are known, since a command that
//! fails ends a script. An unknown command is assumed to succeed, and no failure is derived from
//! that assumption.
//!
//! Files: `shell/words` splits the text into tokens, `shell/flow` follows it and judges conditions,
//! `shell/route` reads `ip`.

use std::time::Duration;

mod flow;
mod route;
mod words;

use crate::limits::{SHELL_CALLS_MAX, SHELL_WORK_MAX};

pub(super) use self::flow::outcome;

/// Actions that the commands of a script may still take. One allowance serves one script.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowance {
    /// Function calls left for the text that runs.
    calls: usize,
    /// Words and letters left. 0: the allowance is used up.
    work: usize,
}

impl Default for Allowance {
    fn default() -> Allowance {
        Allowance {
            calls: SHELL_CALLS_MAX,
            work: SHELL_WORK_MAX,
        }
    }
}

/// The effect of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    /// A setting by its `sysctl` name (`net.ipv4.tcp_ecn`), or `module.parameter`
    /// (`tcp_cubic.hystart`), or [`ROUTE_WINDOW`](world::virtual_host::ROUTE_WINDOW).
    Set { name: String, value: String },
    /// Sets the common settings of the suites (`defaults.sh`).
    Defaults,
    /// Restores the settings of the script's start.
    Restore,
    /// Makes the host forget its peers: `ip tcp_metrics flush`.
    ForgetPeers,
    /// Puts a queue that takes nothing before the device, or removes it.
    Congested(bool),
    /// Sets the MTU of the device in bytes: `ip link set .. mtu N`.
    Mtu(usize),
    /// Lets time pass.
    Sleep(Duration),
    /// Has no effect here; this is the command's text.
    Ignored(String),
}

/// The status with which a command ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// 0: success.
    Is(u8),
    Unknown,
}

/// Effects of a text of commands, and its status.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Effects in the order of the commands.
    pub effects: Vec<Effect>,
    pub status: Status,
}

const OK: Status = Status::Is(0);

/// Adds the effects of one command. `words` begin with its name; `to` is the file that takes its
/// output.
fn command(words: &[&str], to: Option<&str>, out: &mut Vec<Effect>) -> Status {
    let text = || match to {
        Some(path) => format!("{} > {path}", words.join(" ")),
        None => words.join(" "),
    };
    let ignored = || Effect::Ignored(text());
    let (path, rest) = words.split_first().map_or(("", &[][..]), |(a, b)| (*a, b));
    match (base_name(path), rest) {
        _ if path.ends_with("defaults.sh") => {
            out.push(Effect::Defaults);
            if path == "./defaults.sh" {
                // The kernel's copy of `defaults.sh` enables Fast Open, which the older one does
                // not.
                out.extend(setting("net.ipv4.tcp_fastopen=0x3"));
            }
        }
        _ if path.contains("sysctl_restore") => out.push(Effect::Restore),
        ("set_sysctls.py", _) => {
            for word in rest {
                let ignored = || Effect::Ignored(format!("{path} {word}"));
                out.push(file_setting(word).unwrap_or_else(ignored));
            }
        }
        ("sysctl", _) => {
            for word in rest.iter().filter(|word| word.contains('=')) {
                out.push(setting(word).unwrap_or_else(ignored));
            }
            if rest
                .iter()
                .any(|word| matches!(*word, "-p" | "-f" | "--system"))
            {
                out.push(ignored());
                return Status::Unknown;
            }
        }
        ("echo" | "printf", _) if to.is_some() => {
            let written = format!("{}={}", to.unwrap_or_default(), written(words));
            out.push(file_setting(&written).unwrap_or_else(ignored));
        }
        // Offloads of the device cannot be seen here, since the wire has none.
        ("ethtool", ["-K" | "--features" | "--offload", ..]) => out.push(ignored()),
        ("ip", _) => return route::ip(rest, &text(), out),
        ("ifconfig", [.., "mtu", bytes]) => {
            out.push(bytes.parse().map_or_else(|_| ignored(), Effect::Mtu))
        }
        ("tc", ["qdisc", verb, rest @ ..]) => {
            let takes_nothing = rest.windows(2).any(|pair| pair == ["limit", "0"]);
            out.push(match *verb {
                "add" | "replace" | "change" if takes_nothing => Effect::Congested(true),
                _ => Effect::Congested(false),
            });
        }
        ("sleep", [wait]) => match seconds(wait) {
            Some(wait) => out.push(Effect::Sleep(wait)),
            None => out.push(ignored()),
        },
        _ => {
            out.push(ignored());
            return Status::Unknown;
        }
    }
    OK
}

/// Writes `text` to each of `paths`, as `tee` does.
fn write_to(paths: &[&str], text: &str, out: &mut Vec<Effect>) {
    for path in paths.iter().filter(|path| !path.starts_with('-')) {
        let setting = file_setting(&format!("{path}={text}"));
        out.push(setting.unwrap_or_else(|| Effect::Ignored(format!("tee {path}"))));
    }
}

/// The text that `echo` or `printf` prints.
fn written(words: &[&str]) -> String {
    let words: Vec<&str> = words[1..]
        .iter()
        .copied()
        .filter(|word| !matches!(*word, "-n" | "-e" | "%s" | "%s\\n" | "%d" | "%d\\n"))
        .collect();
    let text = words.join(" ");
    text.trim_end_matches("\\n").trim_end().to_owned()
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Seconds like `2`, `0.5` or `2s`. None for other units, like `100ms`.
fn seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.strip_suffix('s').unwrap_or(text).parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// A setting like `net.ipv4.tcp_ecn=1`.
fn setting(word: &str) -> Option<Effect> {
    let (name, value) = word.split_once('=')?;
    Some(Effect::Set {
        name: name.trim().replace('/', "."),
        value: arithmetic(value.trim()),
    })
}

/// A setting by its file: `/proc/sys/net/ipv4/tcp_ecn=1`,
/// `/sys/module/tcp_cubic/parameters/hystart=0`.
fn file_setting(word: &str) -> Option<Effect> {
    let (path, value) = word.split_once('=')?;
    let name = if let Some(name) = path.strip_prefix("/proc/sys/") {
        name.replace('/', ".")
    } else {
        let (module, parameter) = path
            .strip_prefix("/sys/module/")?
            .split_once("/parameters/")?;
        format!("{module}.{parameter}")
    };
    Some(Effect::Set {
        name,
        value: arithmetic(value),
    })
}

/// Replaces products like `$((15*1024))` by their value.
fn arithmetic(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("$((") {
        let Some((product, behind)) = after.split_once("))") else {
            break;
        };
        let factors: Option<Vec<u64>> = product.split('*').map(|f| f.trim().parse().ok()).collect();
        let Some(factors) = factors else {
            break;
        };
        out += before;
        out += &factors
            .iter()
            .fold(1u64, |all, f| all.saturating_mul(*f))
            .to_string();
        rest = behind;
    }
    out + rest
}

#[cfg(test)]
mod tests;
