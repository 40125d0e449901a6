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

/// The program of `tcp[tcpflags] & (tcp-syn|tcp-rst) != 0 or tcp[5] & 63 == 0`.
const FLAGS_OR_BYTE: [(u16, u8, u8, u32); 14] = [
    (40, 0, 0, 12),
    (21, 0, 11, 2_048),
    (48, 0, 0, 23),
    (21, 0, 9, 6),
    (40, 0, 0, 20),
    (69, 7, 0, 8_191),
    (177, 0, 0, 14),
    (80, 0, 0, 27),
    (69, 3, 0, 6),
    (80, 0, 0, 19),
    (84, 0, 0, 63),
    (21, 0, 1, 0),
    (6, 0, 0, 262_144),
    (6, 0, 0, 0),
];

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
    assert_eq!(filter.judge(&frame(6, 80)[..], 60), Verdict::Wanted);
    assert_eq!(filter.judge(&frame(6, 81)[..], 60), Verdict::Unwanted);
    assert_eq!(filter.judge(&frame(17, 80)[..], 60), Verdict::Unwanted);
    let cut = &frame(6, 80)[..23];
    assert_eq!(filter.judge(cut, 60), Verdict::Beyond, "the protocol");
    let cut = &frame(17, 80)[..24];
    assert_eq!(filter.judge(cut, 60), Verdict::Unwanted, "UDP for sure");
}

#[test]
fn programs_that_compare_fields_become_a_few_comparisons() {
    for (words, number) in [(&TCP_80, 6), (&FLAGS_OR_BYTE, 5)] {
        let filter = FrameFilter::new(&program(words)).expect("a program");
        let comparisons = filter.comparisons.expect("loads and comparisons");
        assert_eq!(comparisons.len(), number, "{comparisons:?}");
    }
    let computes = [
        (40, 0, 0, 12),
        (4, 0, 0, 1),
        (21, 0, 1, 7),
        (6, 0, 0, 1),
        (6, 0, 0, 0),
    ];
    let filter = FrameFilter::new(&program(&computes)).expect("a program");
    assert_eq!(filter.comparisons, None, "a sum");
}

#[test]
fn comparisons_leave_a_frame_that_lacks_bytes_to_the_program() {
    let filter = FrameFilter::new(&program(&FLAGS_OR_BYTE)).expect("a program");
    let mut whole = frame(6, 80);
    whole[19 + 14 + 6] = 1;
    for (end, verdict) in [
        (12, Verdict::Beyond),
        (14, Verdict::Beyond),
        (24, Verdict::Beyond),
        (47, Verdict::Beyond),
        (48, Verdict::Unwanted),
    ] {
        assert_eq!(filter.judge(&whole[..end], 60), verdict, "{end} bytes");
    }
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
    assert_eq!(filter.judge(&[0][..], 1), Verdict::Wanted);
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
        assert_eq!(filter.judge(&[][..], 0), Verdict::Unwanted);
    }
}

/// An instruction that loads, compares, masks or ends, on few places and few values.
fn simple_instruction() -> impl Strategy<Value = Instruction> {
    let codes = [40, 48, 32, 72, 80, 64, 177, 84, 21, 21, 69, 69, 5, 6];
    let code = proptest::sample::select(codes.to_vec());
    (code, 0_u8..4, 0_u8..4, 0_u32..10).prop_map(|(code, then, otherwise, k)| {
        let k = match code {
            5 => k & 3,
            6 => k & 1,
            _ => k,
        };
        Instruction {
            code,
            then,
            otherwise,
            k,
        }
    })
}

/// Fields that all have to have a value, or to lack bits: the kind of program whose comparisons are
/// joined. Places, values and frames are few, so that some frames fit.
fn conjunction() -> impl Strategy<Value = Vec<Instruction>> {
    let codes = proptest::sample::select(vec![32_u16, 40, 48, 64, 72, 80]);
    let bytes = || proptest::array::uniform4(0_u8..3).prop_map(u32::from_be_bytes);
    let field = (codes, 0_u32..10, bytes(), bytes(), any::<(bool, bool)>());
    proptest::collection::vec(field, 1..5).prop_map(|fields| {
        let mut words = Vec::new();
        for (code, at, value, mask, (is_masked, lacks_bits)) in fields {
            let width = u32::MAX >> [0, 16, 24][usize::from(code >> 3 & 3)];
            if code >= 64 {
                words.push((0xb1, 0, 0, 0));
            }
            words.push((code, 0, 0, at));
            if is_masked {
                words.push((84, 0, 0, mask));
            }
            let mask = if is_masked { mask } else { u32::MAX };
            words.push(match lacks_bits {
                true => (69, 0, 0, value & width),
                false => (21, 0, 0, value & mask & width),
            });
        }
        words.extend([(6, 0, 0, 1), (6, 0, 0, 0)]);
        // A field that does not fit leads to the last result.
        let end = words.len();
        for (at, (code, then, otherwise, _)) in words.iter_mut().enumerate() {
            let skipped = (end - 2 - at.min(end - 2)) as u8;
            match *code {
                69 => *then = skipped,
                21 => *otherwise = skipped,
                _ => {}
            }
        }
        program(&words)
    })
}

proptest! {
    #[test]
    fn joined_comparisons_decide_as_the_program_does(
        words in conjunction(),
        frames in proptest::collection::vec(proptest::collection::vec(0_u8..3, 0..24), 50),
    ) {
        let filter = FrameFilter::new(&words).expect("a program");
        prop_assert!(filter.comparisons.is_some());
        for frame in &frames {
            let by_program = filter.judge_by_program(&frame[..], frame.len());
            prop_assert_eq!(filter.judge(&frame[..], frame.len()), by_program);
        }
    }

    #[test]
    fn comparisons_decide_as_the_program_does(
        words in proptest::collection::vec(simple_instruction(), 1..24),
        frames in proptest::collection::vec(proptest::collection::vec(0_u8..3, 0..24), 20),
    ) {
        let mut words = words;
        // Whoever jumps beyond a random program's end finds results there.
        words.extend(program(&[(6, 0, 0, 0), (6, 0, 0, 1), (6, 0, 0, 0), (6, 0, 0, 1), (6, 0, 0, 0)]));
        let filter = FrameFilter::new(&words).expect("jumps within the program");
        for frame in &frames {
            let by_program = filter.judge_by_program(&frame[..], frame.len());
            prop_assert_eq!(filter.judge(&frame[..], frame.len()), by_program);
        }
    }

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
            let whole = filter.judge(&bytes[..], bytes.len());
            for end in 0..bytes.len() {
                let cut = filter.judge(&bytes[..end], bytes.len());
                prop_assert!(cut == whole || cut == Verdict::Beyond);
            }
        }
    }
}
