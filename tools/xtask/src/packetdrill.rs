//! `cargo xtask packetdrill`: runs scripts with packetdrill, which has our plug-in as its network.
//!
//! packetdrill is not in the repository: `--binary` says where it is. Each script runs in its own
//! network namespace if we may make one, so that its shell lines set values there. Otherwise only
//! the plug-in's own commands make settings.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::cli::PacketdrillOptions;
use crate::run;

/// Options for all scripts of a family. The addresses are those of the suites' own runners.
const FAMILIES: [(&str, &[&str]); 3] = [
    ("ipv4", &V4),
    ("ipv4-mapped-ipv6", &V4),
    (
        "ipv6",
        &[
            "--mtu=1520",
            "--local_ip=fd3d:0a0b:17d6::1",
            "--gateway_ip=fd3d:0a0b:17d6:8888::1",
            "--remote_ip=fd3d:fa7b:d17d::1",
        ],
    ),
];
const V4: [&str; 4] = [
    "--local_ip=192.168.0.1",
    "--gateway_ip=192.168.0.1",
    "--netmask_ip=255.255.0.0",
    "--remote_ip=192.0.2.1",
];

/// Runs the scripts. True: all passed.
pub fn packetdrill(root: &Path, options: &PacketdrillOptions) -> Result<bool, String> {
    run::run(run::cargo().args(["build", "-p", "packetdrill"]))?;
    let library = run::target(root).join("debug/libmillstream_packetdrill.so");
    let binary = absolute(&options.binary)?;
    let has_namespaces = Command::new("unshare").args(["-n", "true"]).output();
    let has_namespaces = has_namespaces.is_ok_and(|output| output.status.success());
    let mut failed = 0_usize;
    for script in &options.scripts {
        let script = absolute(script)?;
        for (family, addresses) in FAMILIES {
            if !options.families.iter().any(|wanted| wanted == family) {
                continue;
            }
            let mut command = run::command("timeout");
            command.arg(options.seconds.to_string());
            if has_namespaces {
                command.args(["unshare", "-n"]);
            }
            command
                .arg(&binary)
                .arg(format!("--so_filename={}", library.display()))
                .arg(format!("--ip_version={family}"))
                .args(addresses)
                .args(&options.flags)
                .arg(script.file_name().unwrap_or_default())
                .current_dir(script.parent().unwrap_or(root));
            let output = command
                .output()
                .map_err(|error| format!("{}: {error}", binary.display()))?;
            failed += usize::from(!output.status.success());
            tell(&script, family, &output);
        }
    }
    println!("packetdrill: {failed} failed");
    Ok(failed == 0)
}

fn tell(script: &Path, family: &str, output: &Output) {
    let word = if output.status.success() {
        "pass"
    } else {
        "FAIL"
    };
    println!("{word} {} {family}", script.display());
    if !output.status.success() {
        for text in [&output.stdout, &output.stderr] {
            for line in String::from_utf8_lossy(text).lines() {
                println!("     {line}");
            }
        }
    }
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize()
        .map_err(|error| format!("{}: {error}", path.display()))
}
