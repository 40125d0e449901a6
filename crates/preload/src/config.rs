//! The settings that `mill run` passes in one environment variable, one per line.
//!
//! ```text
//! wire=packet:veth0
//! addr=10.0.0.2/24
//! gateway=10.0.0.1
//! listen=80,443
//! connect=10.0.0.0/8
//! not=22,192.168.0.0/16
//! program=nginx
//! listen=8080
//! program=*
//! lo
//! story_one_in=100
//! hugetlb=off
//! packet_rules=/etc/rules.toml
//! report=/tmp/counters
//! ```
//!
//! Lines after `program` hold in programs of that file or called by that name only, up to the next
//! such line; `*` stands for all.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use millstream::rules::RuleSet;
use millstream::{HugePages, IpCidr, WireSpec};
use packetio::Backend;

use crate::rules::Rules;

/// The variable's name.
pub const VARIABLE: &std::ffi::CStr = c"MILLSTREAM_RUN";

/// The settings of a program.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The wire.
    pub wire: WireSpec,
    /// Our addresses; empty on a `mux` wire, where the host has them.
    pub addresses: Vec<IpCidr>,
    /// Routers for everything that no subnet covers.
    pub gateways: Vec<IpAddr>,
    /// The rules that divide sockets between the wire and the kernel.
    pub rules: Rules,
    /// One in so many new connections has its story recorded (`mill ss -v`); 0: none.
    pub story_one_in: u32,
    /// The pages under tables and buffers. Programs fork, and so does an heir. A table is a
    /// process's own, and its copies of written pages would take reserved ones that nobody has
    /// promised.
    pub hugetlb: HugePages,
    /// The file of the stack's packet rules.
    pub packet_rules: Option<PathBuf>,
    /// The file for the counters when the program ends.
    pub report: Option<PathBuf>,
}

impl Settings {
    /// Reads the variable's value, for a program of these names.
    ///
    /// # Errors
    /// One line that names the setting.
    pub fn parse(text: &str, programs: &[String]) -> Result<Self, String> {
        let mut wire: Option<WireSpec> = None;
        let mut settings = Self {
            wire: WireSpec::from_str("loopback").map_err(|error| error.to_string())?,
            addresses: Vec::new(),
            gateways: Vec::new(),
            rules: Rules::default(),
            story_one_in: 0,
            hugetlb: HugePages::Transparent,
            packet_rules: None,
            report: None,
        };
        let mut is_meant = true;
        for line in text.lines() {
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            if key == "program" {
                is_meant = value == "*" || programs.iter().any(|program| program == value);
                continue;
            }
            if !is_meant {
                continue;
            }
            let bad = |why: &str| format!("{key}={value}: {why}");
            match key {
                "wire" => wire = Some(value.parse().map_err(|error| format!("{error}"))?),
                "addr" => {
                    let address = value.parse().map_err(|_| bad("no address and prefix"))?;
                    settings.addresses.push(address);
                }
                "gateway" => {
                    let gateway = value.parse().map_err(|_| bad("no address"))?;
                    settings.gateways.push(gateway);
                }
                "lo" => settings.rules.add_loopback(),
                "story_one_in" => {
                    settings.story_one_in = value.parse().map_err(|_| bad("no number"))?;
                }
                "hugetlb" => settings.hugetlb = value.parse().map_err(|_| bad("no such rule"))?,
                "packet_rules" => settings.packet_rules = Some(PathBuf::from(value)),
                "report" => settings.report = Some(PathBuf::from(value)),
                "listen" | "connect" | "not" => {
                    settings.rules.add(key, value).map_err(|why| bad(&why))?;
                }
                _ => return Err(bad("no such setting")),
            }
        }
        settings.wire = wire.ok_or("no wire")?;
        Ok(settings)
    }
}

impl Settings {
    /// True for a `mux` wire, whose service shares it among processes.
    #[must_use]
    pub fn has_service(&self) -> bool {
        matches!(self.wire.backend, Backend::Mux(_))
    }

    /// Reads the stack's packet rules.
    ///
    /// # Errors
    /// One line that names the file.
    pub fn packet_rule_set(&self) -> Result<RuleSet, String> {
        let Some(file) = &self.packet_rules else {
            return Ok(RuleSet::default());
        };
        let text = std::fs::read_to_string(file);
        let text = text.map_err(|error| format!("packet rules: {}: {error}", file.display()))?;
        millstream::rules::parse(&text).map_err(|error| error.in_file(file))
    }

    /// How processes can share listeners, if they cannot on this wire.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self.wire.backend {
            Backend::Packet(_) | Backend::Xdp(_) => {
                " (`mill run --workers` lets processes share listeners, not connections)"
            }
            _ => "",
        }
    }

    /// The file for the counters of this process. A child's file is named after its parent's.
    #[must_use]
    pub fn report_of(&self, is_child: bool) -> Option<PathBuf> {
        let path = self.report.clone()?;
        if !is_child {
            return Some(path);
        }
        let mut name = path.into_os_string();
        name.push(format!(".{}", std::process::id()));
        Some(name.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Owner;

    #[test]
    fn settings_written_are_read() {
        let text = "wire=packet:v0\naddr=10.0.0.2/24\ngateway=10.0.0.1\nlisten=80,443\nnot=22\nlo\n\
                    story_one_in=9\nhugetlb=off";
        let settings = Settings::parse(text, &[]).expect("settings");
        assert!(settings.rules.has_loopback());
        assert_eq!(settings.addresses.len(), 1);
        assert_eq!(settings.gateways.len(), 1);
        assert_eq!(settings.wire.kind(), "packet");
        assert_eq!(settings.story_one_in, 9);
        assert_eq!(settings.hugetlb, HugePages::Off);
        assert!(
            settings
                .packet_rule_set()
                .is_ok_and(|set| set.rules.is_empty())
        );
    }

    #[test]
    fn rules_of_a_program_hold_in_it_alone() {
        let text = "program=nginx\nlisten=80\nprogram=*\nnot=22\nwire=loopback";
        let owner = |program: &str, local: &str| {
            let settings = Settings::parse(text, &[program.to_owned()]).expect("settings");
            let local = local.parse().expect("an address");
            settings.rules.listener(local, &[])
        };
        assert_eq!(owner("nginx", "0.0.0.0:80"), Owner::Both);
        assert_eq!(owner("nginx", "0.0.0.0:81"), Owner::Kernel);
        assert_eq!(owner("curl", "0.0.0.0:81"), Owner::Both);
        assert_eq!(owner("curl", "0.0.0.0:22"), Owner::Kernel);
    }

    #[test]
    fn packet_rules_that_cannot_be_read_are_named() {
        let settings = Settings::parse("wire=loopback\npacket_rules=/none", &[]).expect("settings");
        let cause = settings.packet_rule_set().expect_err("a complaint");
        assert!(cause.starts_with("packet rules: /none: "), "{cause}");
    }

    #[test]
    fn wrong_settings_are_named() {
        for (text, part) in [
            ("", "no wire"),
            ("wire=packet:v0\nlisten=x", "listen=x"),
            ("wire=packet:v0\nconnect=10.0.0.0/99", "connect="),
            ("wire=packet:v0\nstory_one_in=x", "no number"),
            ("wire=packet:v0\nhugetlb=all", "hugetlb=all: no such rule"),
            ("wire=packet:v0\nfly=1", "no such setting"),
        ] {
            let cause = Settings::parse(text, &[]).expect_err("a complaint");
            assert!(cause.contains(part), "{cause}");
        }
    }
}
