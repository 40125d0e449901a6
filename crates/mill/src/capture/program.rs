//! A filter of libpcap's as a program of the classic BPF machine: compiled by `tcpdump -ddd`, run
//! here. The machine has bounds on everything, so a program that makes no sense takes nothing.

use std::process::{Command, Stdio};

/// Instructions of the longest program (`BPF_MAXINSNS`).
const LENGTH_MAX: usize = 4096;
/// Words of scratch memory (`BPF_MEMWORDS`).
const MEMORY_WORDS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u16,
    then: u8,
    otherwise: u8,
    k: u32,
}

/// A filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program(Vec<Instruction>);

impl Program {
    /// Takes every frame.
    pub fn all() -> Self {
        Self(Vec::new())
    }

    /// Has tcpdump compile a filter for Ethernet. The error is one line.
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

    /// Reads `-ddd`: the number of instructions, then four numbers for each.
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
        let program: Option<Vec<_>> = lines.map(instruction).collect();
        let program = program?;
        (program.len() == length && length <= LENGTH_MAX && length > 0).then_some(Self(program))
    }

    /// The frame is wanted.
    pub fn accepts(&self, bytes: &[u8], wire_bytes: usize) -> bool {
        self.0.is_empty() || self.run(bytes, wire_bytes).unwrap_or(0) > 0
    }

    /// The program's result; `None` for a load beyond the frame or a program without sense. Jumps
    /// go forward only, so every program ends.
    fn run(&self, bytes: &[u8], wire_bytes: usize) -> Option<u32> {
        let (mut a, mut x, mut at) = (0_u32, 0_u32, 0_usize);
        let mut memory = [0_u32; MEMORY_WORDS];
        loop {
            let Instruction {
                code,
                then,
                otherwise,
                k,
            } = *self.0.get(at)?;
            at += 1;
            match code & 7 {
                0 => a = load(code, k, x, bytes, wire_bytes, &memory)?,
                1 => x = load_index(code, k, bytes, wire_bytes, &memory)?,
                2 => *memory.get_mut(k as usize)? = a,
                3 => *memory.get_mut(k as usize)? = x,
                4 => a = compute(code, a, if code & 8 == 0 { k } else { x })?,
                5 if code & 0xf0 == 0 => at = at.checked_add(k as usize)?,
                5 => {
                    let operand = if code & 8 == 0 { k } else { x };
                    let holds = match code & 0xf0 {
                        0x10 => a == operand,
                        0x20 => a > operand,
                        0x30 => a >= operand,
                        0x40 => a & operand != 0,
                        _ => return None,
                    };
                    at += usize::from(if holds { then } else { otherwise });
                }
                6 => return Some(if code & 0x18 == 0x10 { a } else { k }),
                _ if code & 0xf8 == 0 => x = a,
                _ => a = x,
            }
        }
    }
}

/// `BPF_LD`.
fn load(
    code: u16,
    k: u32,
    x: u32,
    bytes: &[u8],
    wire_bytes: usize,
    memory: &[u32; MEMORY_WORDS],
) -> Option<u32> {
    let offset = match code & 0xe0 {
        0x00 => return Some(k),
        0x20 => k,
        0x40 => k.checked_add(x)?,
        0x60 => return memory.get(k as usize).copied(),
        0x80 => return u32::try_from(wire_bytes).ok(),
        _ => return None,
    };
    let width = match code & 0x18 {
        0x00 => 4,
        0x08 => 2,
        0x10 => 1,
        _ => return None,
    };
    let offset = offset as usize;
    let field = bytes.get(offset..offset.checked_add(width)?)?;
    Some(
        field
            .iter()
            .fold(0, |word, byte| word << 8 | u32::from(*byte)),
    )
}

/// `BPF_LDX`.
fn load_index(
    code: u16,
    k: u32,
    bytes: &[u8],
    wire_bytes: usize,
    memory: &[u32; MEMORY_WORDS],
) -> Option<u32> {
    match code & 0xe0 {
        0x00 => Some(k),
        0x60 => memory.get(k as usize).copied(),
        0x80 => u32::try_from(wire_bytes).ok(),
        // The length of an IPv4 header.
        0xa0 => Some(u32::from(bytes.get(k as usize)? & 15) * 4),
        _ => None,
    }
}

/// `BPF_ALU`.
fn compute(code: u16, a: u32, operand: u32) -> Option<u32> {
    Some(match code & 0xf0 {
        0x00 => a.wrapping_add(operand),
        0x10 => a.wrapping_sub(operand),
        0x20 => a.wrapping_mul(operand),
        0x30 => a.checked_div(operand)?,
        0x40 => a | operand,
        0x50 => a & operand,
        0x60 => a.checked_shl(operand).unwrap_or(0),
        0x70 => a.checked_shr(operand).unwrap_or(0),
        0x80 => a.wrapping_neg(),
        0x90 => a.checked_rem(operand)?,
        0xa0 => a ^ operand,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use packetio::pcap::{Direction, PcapWriter};
    use proptest::prelude::*;

    use super::*;

    /// `tcpdump -y EN10MB -ddd 'tcp port 80 and ip'`, as libpcap 1.10 compiles it.
    const TCP_80: &str = "14\n40 0 0 12\n21 11 0 34525\n21 0 10 2048\n48 0 0 23\n21 0 8 6\n\
        40 0 0 20\n69 6 0 8191\n177 0 0 14\n72 0 0 14\n21 2 0 80\n72 0 0 16\n21 0 1 80\n\
        6 0 0 262144\n6 0 0 0\n";

    fn frame(protocol: u8, port: u16) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[12] = 8;
        frame[14] = 0x45;
        frame[23] = protocol;
        frame[36..38].copy_from_slice(&port.to_be_bytes());
        frame
    }

    #[test]
    fn filter_takes_what_it_names() {
        let program = Program::parse(TCP_80).unwrap();
        assert!(program.accepts(&frame(6, 80), 60));
        assert!(!program.accepts(&frame(6, 81), 60));
        assert!(!program.accepts(&frame(17, 80), 60));
        assert!(!program.accepts(&frame(6, 80)[..20], 60), "cut short");
        assert!(Program::all().accepts(&[], 0));
    }

    #[test]
    fn text_that_is_no_program_is_refused() {
        for text in ["", "0\n", "2\n6 0 0 1\n", "1\n6 0 0\n", "1\nx 0 0 1\n"] {
            assert_eq!(Program::parse(text), None, "{text:?}");
        }
    }

    /// Frames of several kinds, some cut short and some with random bytes.
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
                // IPv6, with TCP behind it.
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

    proptest! {
        #[test]
        fn any_program_ends_on_any_frame(
            code in proptest::collection::vec((any::<u16>(), any::<u8>(), any::<u8>(), any::<u32>()), 1..64),
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let program = code.into_iter().map(|(code, then, otherwise, k)| Instruction {
                code: code & 0xff,
                then,
                otherwise,
                k: k & 0xff,
            });
            let _ = Program(program.collect()).accepts(&bytes, bytes.len());
        }
    }
}
