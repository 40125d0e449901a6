//! Options of packetdrill that it does not pass to a plug-in. They are read from the process's
//! command line, and from the options at the head of the script.
//!
//! All of them are optional. Local addresses are also learnt from `bind` and from arriving packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

/// The options of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The stack's addresses. Connections come from the first one of their family.
    pub locals: Vec<IpAddr>,
    /// The MTU in bytes.
    pub mtu: usize,
    /// Uses the system's clock instead of a virtual one.
    pub is_real_time: bool,
    /// Directory with settings from outside, see [`settings`](crate::settings).
    pub settings: Option<PathBuf>,
    /// Seed of sequence numbers, ports and cookies: the same in every run. None: random ones.
    pub seed: Option<[u64; 4]>,
    /// Puts our commands before those of the host on `PATH` while the script runs.
    pub shims: bool,
}

impl Invocation {
    /// The options of a run. `arguments` are those of the process, `script` is the text of the
    /// script, and `flags` is the value of `--so_flags`.
    ///
    /// # Errors
    /// A line that names the invalid flag.
    pub fn new(arguments: &[String], script: &str, flags: &str) -> Result<Self, String> {
        let mut told = Self {
            locals: Vec::new(),
            mtu: MTU_DEFAULT,
            is_real_time: false,
            settings: std::env::var_os(SETTINGS_VARIABLE).map(PathBuf::from),
            seed: Some(SEED),
            shims: true,
        };
        // The command line overrides the script.
        told.take_options(&options_of(script));
        told.take_options(arguments);
        for flag in flags.split(',').map(str::trim).filter(|f| !f.is_empty()) {
            told.take_flag(flag)?;
        }
        for local in LOCALS_DEFAULT {
            if !told.locals.contains(&local) {
                told.locals.push(local);
            }
        }
        Ok(told)
    }

    fn take_options(&mut self, words: &[String]) {
        for (at, word) in words.iter().enumerate() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word.as_str(), words.get(at + 1).map(String::as_str)),
            };
            match (name, value) {
                ("--local_ip", Some(value)) => {
                    let address = value.split('/').next().unwrap_or_default();
                    // packetdrill itself reports an address that it cannot parse.
                    if let Ok(address) = address.parse() {
                        self.locals.retain(|local| *local != address);
                        self.locals.insert(0, address);
                    }
                }
                ("--mtu", Some(value)) => {
                    self.mtu = value
                        .parse()
                        .ok()
                        .filter(|mtu| MTU_RANGE.contains(mtu))
                        .unwrap_or(self.mtu);
                }
                _ => {}
            }
        }
    }

    fn take_flag(&mut self, flag: &str) -> Result<(), String> {
        let bad = || {
            format!(
                "so_flags: {flag}: should be clock=real, clock=virtual, local=ADDRESS, mtu=BYTES, settings=DIRECTORY, shims=no or seed=random"
            )
        };
        match flag.split_once('=').ok_or_else(bad)? {
            ("clock", "real") => self.is_real_time = true,
            ("clock", "virtual") => self.is_real_time = false,
            ("local", value) => self.locals.insert(0, value.parse().map_err(|_| bad())?),
            ("mtu", value) => {
                let mtu = value.parse().map_err(|_| bad())?;
                self.mtu = Some(mtu)
                    .filter(|m| MTU_RANGE.contains(m))
                    .ok_or_else(bad)?;
            }
            ("settings", value) => self.settings = Some(value.into()),
            ("shims", "no") => self.shims = false,
            ("seed", "random") => self.seed = None,
            _ => return Err(bad()),
        }
        Ok(())
    }
}

/// The options at the head of a script, among blanks and comments.
fn options_of(mut script: &str) -> Vec<String> {
    let mut options = Vec::new();
    loop {
        script = script.trim_start();
        if let Some(comment) = script.strip_prefix("//") {
            script = comment.split_once('\n').map_or("", |(_, rest)| rest);
        } else if let Some(comment) = script.strip_prefix("/*") {
            script = comment.split_once("*/").map_or("", |(_, rest)| rest);
        } else if script.starts_with("--") {
            let mut is_quoted = false;
            let end = script.find(|c: char| {
                is_quoted ^= c == '"';
                c.is_whitespace() && !is_quoted
            });
            let (option, rest) = script.split_at(end.unwrap_or(script.len()));
            options.push(option.to_owned());
            script = rest;
        } else {
            return options;
        }
    }
}

/// The scripts among the arguments, in order. packetdrill runs one after another and makes an
/// instance of the plug-in for each.
pub fn scripts(arguments: &[String]) -> impl Iterator<Item = &String> {
    arguments.iter().filter(|word| word.ends_with(".pkt"))
}

/// Names a directory whose files are named after settings (`net.ipv4.tcp_rmem`) and hold their
/// values.
pub const SETTINGS_VARIABLE: &str = "MILLSTREAM_SETTINGS";
/// The default MTU in bytes, which is packetdrill's.
const MTU_DEFAULT: usize = 1_500;
const MTU_RANGE: std::ops::RangeInclusive<usize> = 68..=65_535;
const SEED: [u64; 4] = [0x6d69_6c6c, 0x7374_7265, 0x616d_2070, 0x6472_696c];
/// Sources of connections without a `local` option or flag: packetdrill accepts any address.
const LOCALS_DEFAULT: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 168, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd3d, 0x0a0b, 0x17d6, 0, 0, 0, 0, 1)),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn invocation(arguments: &str, script: &str, flags: &str) -> Result<Invocation, String> {
        let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        Invocation::new(&arguments, script, flags)
    }

    #[test]
    fn options_stand_on_the_command_line_and_in_the_script() {
        let told = invocation("packetdrill --mtu=1520 --local_ip 10.0.0.1", "", "").unwrap();
        assert_eq!(told.mtu, 1_520);
        assert_eq!(told.locals[0], IpAddr::from([10, 0, 0, 1]));
        let told = invocation("packetdrill", "--local_ip=10.0.0.2\n\n`x --mtu=9`", "").unwrap();
        assert_eq!(told.mtu, 1_500);
        assert_eq!(told.locals[0], IpAddr::from([10, 0, 0, 2]));
    }

    #[test]
    fn options_of_a_script_stand_between_comments() {
        let script = "// about\n/* more\n * --mtu=70 */\n--define=A=\"b c\" // --mtu=71\n--mtu=1400\n0 x --mtu=72";
        assert_eq!(invocation("packetdrill", script, "").unwrap().mtu, 1_400);
        assert_eq!(invocation("p", "/* --mtu=1400", "").unwrap().mtu, 1_500);
    }

    #[test]
    fn the_command_line_wins_over_the_script() {
        let told = invocation(
            "packetdrill --mtu=1300 x.pkt",
            "--mtu=1400\n--local_ip=10.0.0.2",
            "",
        );
        let told = told.unwrap();
        assert_eq!((told.mtu, told.locals[0]), (1_300, [10, 0, 0, 2].into()));
    }

    #[test]
    fn flags_that_make_no_sense_are_refused() {
        let told = invocation("p --mtu=1520", "", "clock=real, mtu=9000").unwrap();
        assert!(told.is_real_time && told.mtu == 9_000);
        for flags in ["clock", "clock=never", "mtu=9", "colour=blue", "local=x"] {
            assert!(invocation("p", "", flags).is_err(), "{flags}");
        }
    }
}
