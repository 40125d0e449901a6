//! Versions of the other systems that are measured, as their programs print them.

use std::process::Command;

use super::process;

/// The version of each program, or the reason why it is unknown.
pub fn versions() -> String {
    let [rivals, netstack] =
        [("rivals", "versions"), ("netstack", "-versions")].map(|(name, word)| said(name, word));
    [rivals, netstack, nginx()].join("; ")
}

/// nginx says it on stderr: `nginx version: nginx/1.22.1`.
fn nginx() -> String {
    let said = Command::new("nginx").arg("-v").output();
    let text = said.map(|output| String::from_utf8_lossy(&output.stderr).trim().to_owned());
    text.unwrap_or_else(|error| format!("nginx: {error}"))
}

fn said(name: &str, word: &str) -> String {
    let outcome = process::beside(name).and_then(|program| {
        let output = Command::new(program)
            .arg(word)
            .output()
            .map_err(|error| format!("{name}: {error}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            false => Err(format!("{name} {word}: {}", output.status)),
        }
    });
    outcome.unwrap_or_else(|cause| cause)
}
