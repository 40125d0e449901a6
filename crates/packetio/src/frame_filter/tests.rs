//! Programs as tcpdump compiles them, invalid programs, and random programs on random frames. A
//! test of `mill capture` compares the results with tcpdump's.

use proptest::prelude::*;

use super::*;

/// The program of `tcpdump -y EN10MB -ddd 'tcp port 80 and ip'`, as libpcap 1.10 compiles it.
const TCP_80: [(u16, u8, u8, u32); 14] = [
    (40, 0, 0, 12),
    (21, 11, 0, 34_525),
    (21, 0, 10, 2_048),
    (48, 0, 0, 23),
    (21, 0, 8, 6),
    (40, 0, 0, 20),
    (69, 6, 0, 8_191),
    (177, 0, 0, 14),
    (72, 0, 0, 14),
    (21, 2, 0, 80),
    (72, 0, 0, 16),
    (21, 0, 1, 80),
    (6, 0, 0, 262_144),
    (6, 0, 0, 0),
];

fn program(words: &[(u16, u8, u8, u32)]) -> Vec<Instruction> {
    let instruction = |&(code, then, otherwise, k): &_| Instruction {
        code,
        then,
        otherwise,
        k,
    };
    words.iter().map(instruction).collect()
}

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
    let filter = FrameFilter::new(&program(&TCP_80)).expect("a program");
    assert_eq!(filter.judge(&frame(6, 80), 60), Verdict::Wanted);
    assert_eq!(filter.judge(&frame(6, 81), 60), Verdict::Unwanted);
    assert_eq!(filter.judge(&frame(17, 80), 60), Verdict::Unwanted);
    let cut = &frame(6, 80)[..23];
    assert_eq!(filter.judge(cut, 60), Verdict::Beyond, "the protocol");
    let cut = &frame(17, 80)[..24];
    assert_eq!(filter.judge(cut, 60), Verdict::Unwanted, "UDP for sure");
}

#[test]
fn jump_over_a_load_compares_what_was_loaded_before() {
    // `A` = 7, then a jump over the load to the comparison behind it.
    let words = [
        (0, 0, 0, 7),
        (5, 0, 0, 1),
        (48, 0, 0, 0),
        (21, 0, 1, 7),
        (6, 0, 0, 1),
        (6, 0, 0, 0),
    ];
    let filter = FrameFilter::new(&program(&words)).expect("a program");
    assert_eq!(filter.judge(&[0], 1), Verdict::Wanted);
}

#[test]
fn program_arrives_as_it_was_sent() {
    let program = program(&TCP_80);
    let arrived = FrameFilter::decode(&encode(&program));
    assert_eq!(arrived, FrameFilter::new(&program));
    assert!(arrived.is_some());
}

#[test]
fn program_without_sense_is_refused() {
    let result = (6, 0, 0, 1);
    for (why, words) in [
        ("nothing", vec![]),
        ("no result", vec![(0, 0, 0, 1)]),
        ("a jump beyond the end", vec![(5, 0, 0, 1), result]),
        ("a branch beyond the end", vec![(21, 0, 1, 1), result]),
        ("memory beyond the last word", vec![(2, 0, 0, 16), result]),
        ("an unknown load", vec![(0xa0, 0, 0, 0), result]),
        ("an unknown width", vec![(0x38, 0, 0, 0), result]),
        ("an unknown computation", vec![(0xb4, 0, 0, 0), result]),
        ("an unknown condition", vec![(0x55, 0, 0, 0), result]),
        ("too much", vec![result; FILTER_INSTRUCTIONS_MAX + 1]),
    ] {
        assert_eq!(FrameFilter::new(&program(&words)), None, "{why}");
        assert_eq!(
            FrameFilter::decode(&encode(&program(&words))),
            None,
            "{why}"
        );
    }
    let longest = encode(&program(&[result; SENT_FILTER_INSTRUCTIONS_MAX]));
    assert!(FrameFilter::decode(&longest).is_some());
    assert_eq!(FrameFilter::decode(&longest[1..]), None, "a part");
    let longer = program(&[result; SENT_FILTER_INSTRUCTIONS_MAX + 1]);
    assert_eq!(FrameFilter::decode(&encode(&longer)), None, "for others");
    assert!(FrameFilter::new(&longer).is_some(), "for oneself");
}

#[test]
fn division_by_zero_takes_nothing() {
    for code in [0x3c, 0x9c] {
        let words = program(&[(0, 0, 0, 7), (code, 0, 0, 0), (6, 0, 0, 1)]);
        let filter = FrameFilter::new(&words).expect("X is known when it runs");
        assert_eq!(filter.judge(&[], 0), Verdict::Unwanted);
    }
}

proptest! {
    #[test]
    fn any_program_that_is_taken_ends_on_any_frame(
        words in proptest::collection::vec((0_u16..256, 0_u8..8, 0_u8..8, 0_u32..256), 1..64),
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut words = program(&words);
        words.push(Instruction { code: 22, ..Instruction::default() });
        // Instructions that are invalid by themselves are removed, because random programs are
        // rarely valid.
        words.retain(|one| {
            FrameFilter::new(&[*one, Instruction { code: 6, ..*one }]).is_some() || one.code & 7 == 5
        });
        if let Some(filter) = FrameFilter::new(&words) {
            let whole = filter.judge(&bytes, bytes.len());
            for end in 0..bytes.len() {
                let cut = filter.judge(&bytes[..end], bytes.len());
                prop_assert!(cut == whole || cut == Verdict::Beyond);
            }
        }
    }
}
