//! The extcap protocol, by which Wireshark asks for interfaces, their link type and settings, and a
//! capture into a FIFO.
//!
//! Wireshark calls `packaging/wireshark/millstream`, which passes everything on to `mill capture`.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;

use super::sources::Which;
use crate::failure::Failure;
use crate::limits::CAPTURE_SNAP_MAX;
use crate::processes::Processes;

/// The name of the interface for all processes, and the prefix of those for one process.
const ALL: &str = "millstream";

/// The words of the protocol.
#[derive(Args, Clone, Debug, Default)]
pub struct ExtcapOptions {
    #[arg(long, hide = true)]
    extcap_interfaces: bool,
    #[arg(long, hide = true, value_name = "VERSION")]
    extcap_version: Option<String>,
    #[arg(long, hide = true, value_name = "NAME")]
    extcap_interface: Option<String>,
    #[arg(long, hide = true)]
    extcap_dlts: bool,
    #[arg(long, hide = true)]
    extcap_config: bool,
    /// Wireshark names an option whose values it wants anew. None of ours has other ones.
    #[arg(long, hide = true, value_name = "OPTION")]
    extcap_reload_option: Option<String>,
    #[arg(long, hide = true, value_name = "OPTION")]
    extcap_config_option_name: Option<String>,
    #[arg(long, hide = true, value_name = "VALUE", allow_hyphen_values = true)]
    extcap_config_option_value: Option<String>,
    /// A capture of this interface was killed. It leaves nothing that had to be removed.
    #[arg(long, hide = true)]
    extcap_cleanup_postkill: bool,
    /// FIFOs for a toolbar, which we have not.
    #[arg(long, hide = true, value_name = "FILE")]
    extcap_control_in: Option<PathBuf>,
    #[arg(long, hide = true, value_name = "FILE")]
    extcap_control_out: Option<PathBuf>,
    #[arg(long, hide = true, value_name = "FILTER", allow_hyphen_values = true)]
    extcap_capture_filter: Option<String>,
    #[arg(long, hide = true)]
    capture: bool,
    #[arg(long, hide = true, value_name = "FILE")]
    fifo: Option<PathBuf>,
}

/// A request of Wireshark.
#[derive(Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing: the caller is not Wireshark.
    Nothing,
    /// A text to print.
    Answer(String),
    /// A check whether a filter is valid.
    Check(String),
    /// A capture.
    Capture {
        which: Which,
        fifo: PathBuf,
        filter: Option<String>,
    },
}

/// Reads the request.
///
/// # Errors
/// An invalid request.
pub fn wish(options: &ExtcapOptions) -> Result<Wish, Failure> {
    if options.extcap_interfaces {
        let snapshots = Processes::find(None)?.snapshots();
        let found = snapshots.iter().map(|one| (one.pid, one.command.as_str()));
        return Ok(Wish::Answer(interfaces(found)));
    }
    let Some(name) = &options.extcap_interface else {
        return Ok(Wish::Nothing);
    };
    let which = which(name).ok_or_else(|| {
        let why = format!("--extcap-interface `{name}`: not {ALL} or {ALL}-PID");
        Failure::Usage(why)
    })?;
    if options.extcap_cleanup_postkill {
        return Ok(Wish::Answer(String::new()));
    }
    let filter = options.extcap_capture_filter.clone();
    let filter = filter.filter(|filter| !filter.trim().is_empty());
    match (options.capture, &options.fifo) {
        (true, Some(fifo)) => Ok(Wish::Capture {
            which,
            fifo: fifo.clone(),
            filter,
        }),
        (true, None) => Err(Failure::Usage("--capture needs --fifo".to_owned())),
        _ if options.extcap_dlts => Ok(Wish::Answer(
            "dlt {number=1}{name=EN10MB}{display=Ethernet}\n".to_owned(),
        )),
        _ if options.extcap_config => Ok(Wish::Answer(config())),
        _ => Ok(filter.map_or(Wish::Answer(String::new()), Wish::Check)),
    }
}

/// The line for each interface.
fn interfaces<'a>(found: impl Iterator<Item = (u32, &'a str)>) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut text = format!("extcap {{version={version}}}{{display=Millstream}}\n");
    text += &format!("interface {{value={ALL}}}{{display=Millstream: all processes}}\n");
    for (pid, command) in found {
        // The process chooses its command's name, in which braces would end a field.
        let is_plain = |one: &char| one.is_alphanumeric() || "-_.+ ".contains(*one);
        let command: String = command.chars().filter(is_plain).collect();
        // Writing to memory does not fail.
        let _ = writeln!(
            text,
            "interface {{value={ALL}-{pid}}}{{display=Millstream: {command} ({pid})}}"
        );
    }
    text
}

/// The settings that Wireshark shows for an interface.
fn config() -> String {
    format!(
        "arg {{number=0}}{{call=--snap}}{{display=Snap length}}{{type=unsigned}}\
         {{range=1,{CAPTURE_SNAP_MAX}}}{{default={CAPTURE_SNAP_MAX}}}\
         {{tooltip=Bytes to keep of each frame}}\n"
    )
}

fn which(name: &str) -> Option<Which> {
    match name.strip_prefix(ALL)? {
        "" => Some(Which::All),
        rest => Some(Which::One(rest.strip_prefix('-')?.parse().ok()?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(interface: &str) -> ExtcapOptions {
        ExtcapOptions {
            extcap_interface: Some(interface.to_owned()),
            ..ExtcapOptions::default()
        }
    }

    #[test]
    fn wishes_are_told_apart() {
        assert_eq!(wish(&ExtcapOptions::default()).unwrap(), Wish::Nothing);
        let mut options = of("millstream-7");
        options.extcap_capture_filter = Some("port 80".to_owned());
        let check = Wish::Check("port 80".to_owned());
        assert_eq!(wish(&options).unwrap(), check);
        options.capture = true;
        assert!(wish(&options).is_err(), "without a FIFO");
        options.fifo = Some("/tmp/fifo".into());
        let capture = Wish::Capture {
            which: Which::One(7),
            fifo: "/tmp/fifo".into(),
            filter: Some("port 80".to_owned()),
        };
        assert_eq!(wish(&options).unwrap(), capture);
        for name in ["eth0", "millstream-", "millstream-x", "millstream7"] {
            assert!(wish(&of(name)).is_err(), "{name}");
        }
    }

    #[test]
    fn words_of_later_versions_are_understood() {
        use clap::Parser as _;

        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            options: ExtcapOptions,
        }
        let said = |line: &str| {
            let words = ["mill"].into_iter().chain(line.split(' '));
            let line = Line::try_parse_from(words).map_err(|error| error.to_string());
            wish(&line.unwrap().options).unwrap()
        };
        let of = "--extcap-interface millstream-7";
        let nothing = Wish::Answer(String::new());
        assert_eq!(said(&format!("{of} --extcap-cleanup-postkill")), nothing);
        let settings = Wish::Answer(config());
        assert_eq!(
            said(&format!("{of} --extcap-config --extcap-reload-option snap")),
            settings
        );
        let value = "--extcap-config-option-name snap --extcap-config-option-value -1";
        assert_eq!(said(&format!("{of} --extcap-config {value}")), settings);
        let check = Wish::Check("-x".to_owned());
        assert_eq!(said(&format!("{of} --extcap-capture-filter -x")), check);
    }

    #[test]
    fn command_of_a_process_cannot_end_its_field() {
        let text = interfaces([(7, "a}{value=eth0"), (8, "two\nlines")].into_iter());
        let last: Vec<&str> = text.lines().skip(2).collect();
        let wanted = [
            "interface {value=millstream-7}{display=Millstream: avalueeth0 (7)}",
            "interface {value=millstream-8}{display=Millstream: twolines (8)}",
        ];
        assert_eq!(last, wanted);
    }
}
