//! A port that takes large frames by a lane of their own. A connection changes its lane only when
//! everything that it sent is acknowledged, and small messages keep to the other lane.

use proptest::test_runner::{Config, TestRunner};
use wire::tcp::Flags;

use crate::large_frames::{Bench, FULL, LARGE, Lanes, stamped, text};

/// Two lanes, a peer, and what the peer has acknowledged.
struct Talk {
    bench: Bench,
    acked: u32,
    next: u32,
    /// The lane of the last segment with text.
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

    /// Writes as much as there is room for.
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

    /// Looks at what left; the lane may have changed only if nothing was on its way. The lanes of
    /// the segments with text.
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

    /// The peer acknowledges so many bytes of what has left.
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
    // The last segment of the text is short, and follows the others.
    talk.write(b"more");
    assert_eq!(talk.lane, Some(true));
    talk.ack(u32::MAX);
    // What comes next may be the head of another long text.
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
    // The connection wanted the bulk lane, and gets it at rest.
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
                // Some segments are sent again.
                talk.bench.now_ns += ms * 1_000_000;
                talk.look();
            }
            changes.set(changes.get() + talk.changes);
            Ok(())
        })
        .unwrap();
    assert!(changes.get() > 10, "{} changes", changes.get());
}
