//! A libpcap filter: compiled by `tcpdump -ddd`, and run by `packetio` here and in the captured
//! processes.

use std::process::{Command, Stdio};

use packetio::frame_filter::{FrameFilter, Instruction, Verdict, encode};
use packetio::limits::SENT_FILTER_INSTRUCTIONS_MAX;

/// A filter, or none, which accepts every frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program(Option<Compiled>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Compiled {
    filter: FrameFilter,
    instructions: Vec<Instruction>,
}

impl Program {
    /// Accepts every frame.
    pub fn all() -> Self {
        Self(None)
    }

    /// Makes tcpdump compile a filter for Ethernet. The error is one line.
    pub fn compile(filter: &str) -> Result<Self, String> {
        let mut command = Command::new("tcpdump");
        command.args(["-y", "EN10MB", "-ddd", "--", filter]);
        let output = command
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("filter: tcpdump: {error}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let line = said.lines().last().unwrap_or("tcpdump refuses it");
            return Err(format!("filter `{filter}`: {line}"));
        }
        Self::parse(&String::from_utf8_lossy(&output.stdout))
            .ok_or_else(|| "filter: tcpdump's program makes no sense".to_owned())
    }

    /// Reads the output of `-ddd`: the number of instructions, then four numbers for each.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let length: usize = lines.next()?.trim().parse().ok()?;
        let instruction = |line: &str| {
            let mut words = line.split_whitespace();
            Some(Instruction {
                code: words.next()?.parse().ok()?,
                then: words.next()?.parse().ok()?,
                otherwise: words.next()?.parse().ok()?,
                k: words.next()?.parse().ok()?,
            })
        };
        let instructions: Option<Vec<_>> = lines.map(instruction).collect();
        let instructions = instructions?;
        if instructions.len() != length {
            return None;
        }
        Some(Self(Some(Compiled {
            filter: FrameFilter::new(&instructions)?,
            instructions,
        })))
    }

    /// True if the filter accepts the frame.
    pub fn accepts(&self, bytes: &[u8], wire_bytes: usize) -> bool {
        self.0
            .as_ref()
            .is_none_or(|one| one.filter.judge(bytes, wire_bytes) == Verdict::Wanted)
    }

    /// The program that a process shall run beside its stack: none if all frames are wanted, or if
    /// the program is too long for that.
    pub fn to_send(&self) -> Vec<u8> {
        match &self.0 {
            Some(one) if one.instructions.len() <= SENT_FILTER_INSTRUCTIONS_MAX => {
                encode(&one.instructions)
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use packetio::pcap::{Direction, PcapWriter};

    use super::*;

    fn frame(protocol: u8, port: u16) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[12] = 8;
        frame[14] = 0x45;
        frame[23] = protocol;
        frame[36..38].copy_from_slice(&port.to_be_bytes());
        frame
    }

    #[test]
    fn text_that_is_no_program_is_refused() {
        for text in ["", "0\n", "2\n6 0 0 1\n", "1\n6 0 0\n", "1\nx 0 0 1\n"] {
            assert_eq!(Program::parse(text), None, "{text:?}");
        }
        let program = Program::parse("1\n6 0 0 1\n").unwrap();
        assert!(program.accepts(&[], 0) && program.to_send().len() == 8);
        assert!(Program::all().accepts(&[], 0) && Program::all().to_send().is_empty());
    }

    /// Frames of several kinds, some of them cut short and some with random bytes.
    fn frames() -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut state = 1_u32;
        for number in 0..400_u16 {
            let mut frame = frame([6, 17, 1][usize::from(number) % 3], number % 90);
            for byte in &mut frame[34..] {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *byte ^= (state >> 24) as u8 & 0x53;
            }
            frame[22] = number as u8;
            frame[26..34].copy_from_slice(&[10, 0, 0, (number % 7) as u8, 10, 0, 0, 2]);
            if number % 5 == 0 {
                // IPv6 with TCP.
                frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
                frame[20] = 6;
            }
            if number % 11 == 0 {
                frame.truncate(14 + usize::from(number) % 40);
            }
            all.push(frame);
        }
        all
    }

    #[test]
    fn filters_choose_as_tcpdump_does() {
        let path = std::env::temp_dir().join(format!("mst-{}-filter.pcapng", std::process::id()));
        let frames = frames();
        let file = std::fs::File::create(&path).unwrap();
        let mut writer = PcapWriter::new(file, "any").unwrap();
        for frame in &frames {
            writer
                .frame(1, Direction::Inbound, frame, frame.len())
                .unwrap();
        }
        drop(writer);
        for filter in [
            "tcp port 80",
            "udp and not port 53",
            "ip6",
            "net 10.0.0.0/30 or icmp",
            "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
            "less 40",
            "ip[8] % 3 = 1 and ip[8] * 2 > 100",
            "host 10.0.0.3 and (tcp[2:2] >> 4 = 2 or udp[0:2] < 700)",
            "ether multicast or vlan",
        ] {
            let mut command = Command::new("tcpdump");
            let output = command
                .arg("-r")
                .arg(&path)
                .args(["--count", filter])
                .output();
            let Ok(output) = output else {
                eprintln!("ignored: tcpdump is not installed");
                break;
            };
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let count = text.split(' ').next().and_then(|count| count.parse().ok());
            let program = Program::compile(filter).unwrap();
            let ours = frames.iter().filter(|one| program.accepts(one, one.len()));
            assert_eq!(Some(ours.count()), count, "{filter}: {text}");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn filter_that_makes_no_sense_is_one_line() {
        match Program::compile("tcp portt 80") {
            Err(line) => assert!(line.starts_with("filter") && !line.contains('\n'), "{line}"),
            Ok(_) => panic!("compiled"),
        }
    }
}
