//! A port with a bulk lane for large frames. A connection changes lanes only when all its data is
//! acknowledged, and short messages use the other lane.

use proptest::test_runner::{Config, TestRunner};
use wire::tcp::Flags;

use crate::large_frames::{Bench, FULL, LARGE, Lanes, stamped, text};

/// A connection on two lanes, and what its peer has acknowledged.
struct Talk {
    bench: Bench,
    acked: u32,
    next: u32,
    /// Lane of the last segment with payload; true: the bulk lane.
    lane: Option<bool>,
    changes: usize,
}

impl Talk {
    fn new() -> Self {
        let bench = Bench::with_lanes(Lanes::Two, LARGE, false, |_| {});
        let next = bench.client.rcv;
        Self {
            bench,
            acked: next,
            next,
            lane: None,
            changes: 0,
        }
    }

    /// Writes as many bytes as fit.
    fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let written = self.bench.app.write_if_open(self.bench.socket, bytes);
            if written == 0 {
                break;
            }
            bytes = &bytes[written..];
        }
        self.look();
    }

    /// Checks that the lane changed only with nothing in flight. Returns the lane of each sent
    /// segment with payload.
    fn look(&mut self) -> Vec<bool> {
        self.bench.settle();
        let mut lanes = Vec::new();
        for (segment, lane) in self.bench.take_with_lanes() {
            if segment.payload.is_empty() {
                assert!(!lane, "an ACK leaves by the small frames' lane");
                continue;
            }
            if self.lane.is_some_and(|last| last != lane) {
                assert_eq!(segment.seq, self.acked, "something could be overtaken");
                self.changes += 1;
            }
            self.lane = Some(lane);
            let end = segment.seq.wrapping_add(segment.payload.len() as u32);
            if (end.wrapping_sub(self.next) as i32) > 0 {
                self.next = end;
            }
            lanes.push(lane);
        }
        lanes
    }

    /// Lets the peer acknowledge this many bytes.
    fn ack(&mut self, bytes: u32) -> Vec<bool> {
        self.acked = self
            .acked
            .wrapping_add(bytes.min(self.next.wrapping_sub(self.acked)));
        let mut ack = stamped(self.bench.client.segment(Flags::ACK));
        ack.window = 60_000;
        self.bench.arrive(&ack.acking(self.acked));
        self.look()
    }
}

#[test]
fn long_text_leaves_by_the_bulk_lane_and_a_message_by_the_other() {
    let mut talk = Talk::new();
    talk.write(b"hello");
    assert_eq!(talk.lane, Some(false));
    talk.ack(5);
    talk.write(&text(5 * FULL));
    assert_eq!(talk.lane, Some(true));
    assert!(talk.bench.cut() > 0);
    // The text's last segment is short, and follows the others by the bulk lane.
    talk.write(b"more");
    assert_eq!(talk.lane, Some(true));
    talk.ack(u32::MAX);
    // The next bytes may begin another long text.
    talk.write(b"header");
    assert_eq!(talk.lane, Some(true));
    talk.ack(u32::MAX);
    talk.write(b"bye");
    assert_eq!(talk.lane, Some(false));
}

#[test]
fn text_of_four_segments_leaves_by_the_small_lane_and_a_byte_more_by_the_other() {
    for (bytes, is_bulk) in [(4 * FULL, false), (4 * FULL + 1, true)] {
        let mut talk = Talk::new();
        talk.write(&text(bytes));
        assert_eq!(talk.lane, Some(is_bulk), "{bytes}");
    }
}

#[test]
fn long_text_behind_a_message_on_its_way_stays_behind_it() {
    let mut talk = Talk::new();
    talk.write(b"header");
    talk.write(&text(5 * FULL));
    assert_eq!((talk.lane, talk.bench.cut()), (Some(false), 0));
    talk.ack(6);
    assert_eq!(talk.lane, Some(false), "the text is on its way");
    while talk.acked != talk.next {
        talk.ack(u32::MAX);
    }
    // The connection asked for the bulk lane, and gets it once everything is acknowledged.
    talk.write(b"header");
    talk.write(&text(5 * FULL));
    assert_eq!(talk.lane, Some(true));
    assert!(talk.bench.cut() > 0);
}

#[test]
fn connection_of_any_story_changes_its_lane_at_rest_only() {
    let mut runner = TestRunner::new(Config {
        cases: 60,
        failure_persistence: None,
        ..Config::default()
    });
    let step = (0u8..3, 1usize..20_000, 0u64..400);
    let story = proptest::collection::vec(step, 10..60);
    let changes = std::cell::Cell::new(0);
    runner
        .run(&story, |story| {
            let mut talk = Talk::new();
            for (kind, size, ms) in story {
                match kind {
                    0 => talk.write(&text(size % 300 + 1)),
                    1 => talk.write(&text(size)),
                    _ => drop(talk.ack(size as u32)),
                }
                // Some segments are retransmitted.
                talk.bench.now_ns += ms * 1_000_000;
                talk.look();
            }
            changes.set(changes.get() + talk.changes);
            Ok(())
        })
        .unwrap();
    assert!(changes.get() > 10, "{} changes", changes.get());
}
