//! Origin of the figures: the machine, its kernel, the commit, and how busy the machine was.

use std::fs;
use std::process::Command;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// Facts about the machine that a reader needs to believe a figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub memory_gib: f64,
    pub kernel: String,
    /// Short hash, with `+` behind it if the tree had changes.
    pub commit: String,
    /// Kind of the build ([`BUILD`]).
    #[serde(default)]
    pub build: String,
    /// Processes that wanted to run, mean over the last minute, before and after.
    pub load: (f64, f64),
    /// Seconds since 1970 at the start.
    pub started_s: u64,
}

/// The kind of this build, as `cargo xtask` names it: profile-guided or plain (decision 0031).
const BUILD: &str = match option_env!("MILLSTREAM_BUILD") {
    Some(build) => build,
    None => "plain",
};

/// The commit of this build. A build without it asks git in the working directory.
const COMMIT: Option<&str> = option_env!("MILLSTREAM_COMMIT");

impl Machine {
    /// Looks at the machine that we run on.
    pub fn look() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let names = rustix::system::uname();
        let load = load();
        Self {
            processor: processor(),
            cores: std::thread::available_parallelism().map_or(0, |cores| cores.get()),
            memory_gib: memory_gib(),
            kernel: format!(
                "{} {}",
                names.sysname().to_string_lossy(),
                names.release().to_string_lossy()
            ),
            commit: commit(),
            build: BUILD.to_owned(),
            load: (load, load),
            started_s: since.map_or(0, |since| since.as_secs()),
        }
    }

    /// Notes the load after the measurement.
    pub fn look_again(&mut self) {
        self.load.1 = load();
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "{}, {} cores, {:.0} GiB; {}; commit {}, {} build; load before and after {:.1}, {:.1}",
            self.processor,
            self.cores,
            self.memory_gib,
            self.kernel,
            self.commit,
            self.build,
            self.load.0,
            self.load.1
        )
    }
}

/// Settings of the kernel's own stack that a reader may have set otherwise.
pub fn kernel_settings() -> String {
    let names = [
        "net/ipv4/tcp_congestion_control",
        "net/ipv4/tcp_rmem",
        "net/ipv4/tcp_wmem",
        "net/ipv4/tcp_timestamps",
    ];
    let rows = names.map(|name| {
        let value = fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default();
        let words: Vec<&str> = value.split_whitespace().collect();
        let short = name.rsplit('/').next().unwrap_or(name);
        format!("{short} {}", words.join(" "))
    });
    let clock =
        fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let clock = clock.unwrap_or_default();
    format!("{}; clock {}", rows.join(", "), clock.trim())
}

/// Settings of Millstream's stacks, unless a figure sets others.
pub fn own_settings() -> String {
    match "loopback:settings".parse() {
        Err(_) => String::new(),
        Ok(wire) => {
            let config = millstream::Config::new(wire);
            format!(
                "looks for work for {} µs before it sleeps, aggregation of {} segments, ACKs {}, {:?}",
                config.spin_ns / 1_000,
                config.aggregation_max,
                if config.merge_acks { "merged" } else { "each" },
                config.tcp.congestion
            )
        }
    }
}

/// The processor's nominal rate in GHz, which is its time-stamp counter's. It is 1 if the kernel
/// does not tell, so that a cycle is a nanosecond. Some kernels tell the rate of the moment.
/// Reading it once gives all values of a report the same rate.
pub fn gigahertz() -> f64 {
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let megahertz = field(&text, "cpu MHz").and_then(|value| value.parse::<f64>().ok());
        megahertz.map_or(1.0, |megahertz| megahertz / 1e3)
    })
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    field(&text, "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn memory_gib() -> f64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = field(&text, "MemTotal").and_then(|value| value.split(' ').next()?.parse().ok());
    kib.map_or(0.0, |kib: f64| kib / 1024.0 / 1024.0)
}

/// The value of the first line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next();
    first.and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

fn commit() -> String {
    if let Some(commit) = COMMIT {
        return commit.to_owned();
    }
    let git = |words: &[&str]| {
        let output = Command::new("git").args(words).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let changed = git(&["status", "--porcelain", "-uno"]).is_none_or(|text| !text.is_empty());
    commit + if changed { "+" } else { "" }
}
