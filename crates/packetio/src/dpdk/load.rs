//! Finds and loads the plug-in, once per process, and composes EAL's arguments.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::thread::sched_getaffinity;

use super::DpdkOptions;
use super::plugin_unsafe::{Device, Plugin, is_privileged, own_file};

const FILE: &str = "libmillstream_dpdk.so";
/// Number of CPUs that EAL can use, regardless of the machine (`RTE_MAX_LCORE` of most builds).
const EAL_CPUS: usize = 128;

/// The running EAL, which starts once and outlives its ports.
struct Running {
    plugin: Plugin,
    /// The file that `plugin=` named.
    named: Option<PathBuf>,
    arguments: Vec<String>,
    /// Process that started EAL.
    pid: u32,
}

static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

/// Opens a port; starts EAL, or checks that it runs with the same arguments.
pub(super) fn device(options: &DpdkOptions) -> Result<Device, String> {
    let more = environment("MILLSTREAM_DPDK_ARGS").unwrap_or_default();
    let more = more.to_string_lossy();
    let arguments = arguments(&format!("{} {more}", options.eal), first_cpu());
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = &*running {
        if running.pid != std::process::id() {
            return Err("DPDK was started before a fork, and does not survive one".to_owned());
        }
        if options.plugin.is_some() && options.plugin != running.named {
            return Err("another plug-in is loaded already".to_owned());
        }
        if !options.eal.trim().is_empty() && arguments != running.arguments {
            return Err(format!(
                "EAL runs already, with other arguments: {}",
                running.arguments.join(" ")
            ));
        }
    }
    let plugin = match &*running {
        Some(running) => running.plugin,
        None => {
            let plugin = find(options.plugin.as_deref())?;
            plugin.start(&arguments)?;
            *running = Some(Running {
                plugin,
                named: options.plugin.clone(),
                arguments,
                pid: std::process::id(),
            });
            plugin
        }
    };
    plugin.open(options)
}

/// EAL's arguments: our defaults, except where `given` (separated by spaces) sets something else,
/// then `given`.
///
/// Our defaults: no telemetry socket, no files that other processes could join, warnings only. EAL
/// gets a single core, `cpu`, because Millstream's threads are not EAL's and it has no other work.
fn arguments(given: &str, cpu: usize) -> Vec<String> {
    let words: Vec<&str> = given.split_whitespace().collect();
    let says = |names: &[&str]| {
        let is = |word: &str, name: &str| {
            let long = name.starts_with("--");
            word == name
                || long && word.strip_prefix(name).is_some_and(|v| v.starts_with('='))
                || !long && word.starts_with(name)
        };
        words
            .iter()
            .any(|word| names.iter().any(|name| is(word, name)))
    };
    let mut arguments = Vec::new();
    if !says(&["--telemetry", "--no-telemetry"]) {
        arguments.push("--no-telemetry".to_owned());
    }
    if !says(SHARING) {
        // Without huge pages EAL accepts only the weaker option.
        let alone = match says(&["--no-huge"]) {
            true => "--no-shconf",
            false => "--in-memory",
        };
        arguments.push(alone.to_owned());
    }
    if !says(&["--log-level"]) {
        arguments.push("--log-level=*:warning".to_owned());
    }
    if !says(&["-c", "-l", "-s", "-S", "--lcores"]) {
        arguments.push(format!("--lcores={cpu}"));
    }
    arguments.extend(words.into_iter().map(str::to_owned));
    arguments
}

/// Arguments about the files that EAL shares with other processes.
const SHARING: &[&str] = &[
    "--in-memory",
    "--no-shconf",
    "--proc-type",
    "--file-prefix",
    "--legacy-mem",
    "--huge-unlink",
];

/// An environment variable that names code to load. A program with more rights than its caller
/// ignores it.
fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|_| !is_privileged())
}

/// A CPU on which this thread may run.
fn first_cpu() -> usize {
    let allowed = sched_getaffinity(None).ok();
    allowed
        .and_then(|set| (0..EAL_CPUS).find(|&cpu| set.is_set(cpu)))
        .unwrap_or(0)
}

/// Loads the plug-in, and starts nothing.
pub fn try_plugin(options: &DpdkOptions) -> Result<(), String> {
    find(options.plugin.as_deref()).map(|_| ())
}

/// Loads the plug-in from the named file, or from the first usual place.
fn find(named: Option<&Path>) -> Result<Plugin, String> {
    let from_environment = || environment("MILLSTREAM_DPDK").map(PathBuf::from);
    if let Some(path) = named.map(Path::to_owned).or_else(from_environment) {
        return Plugin::load(&path);
    }
    let beside = own_file().map(|file| places(&file)).unwrap_or_default();
    match beside.iter().find(|path| path.is_file()) {
        Some(path) => Plugin::load(path),
        None => Plugin::load(Path::new(FILE)).map_err(|error| {
            format!(
                "no DPDK plug-in is installed ({error}); cargo xtask dpdk builds it, MILLSTREAM_DPDK=FILE names it"
            )
        }),
    }
}

/// Usual places of the plug-in, relative to the program or library `file`.
fn places(file: &Path) -> Vec<PathBuf> {
    let Some(directory) = file.parent() else {
        return Vec::new();
    };
    ["millstream", "", "../lib/millstream"]
        .into_iter()
        .map(|place| directory.join(place).join(FILE))
        .collect()
}

#[cfg(test)]
mod tests;
