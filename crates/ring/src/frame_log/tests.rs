//! A writer and its readers: frames read, frames missed, and hostile writers.

use proptest::prelude::*;

use super::*;

const REASONS_OF_TESTS: [&str; 2] = ["drop_first", "drop_second"];

fn pair(words: usize, snap: usize) -> (FrameLog, FrameLogReader) {
    let log = FrameLog::create(words, snap, &REASONS_OF_TESTS).expect("a log");
    let file = log.file().try_clone_to_owned().expect("a copy");
    let reader = FrameLogReader::open(file).expect("a mapping");
    (log, reader)
}

#[test]
fn frames_come_out_as_they_went_in_once_they_are_published() {
    let (mut log, mut reader) = pair(64, 32);
    assert_eq!(reader.next_frame(), None);
    log.write(5, true, b"hello", 5);
    log.write(6, false, &[7; 40], 1500);
    assert_eq!(reader.next_frame(), None, "a batch is whole or not there");
    assert_eq!(reader.unread_share(), 0.0);
    log.publish();
    assert!((0.1..0.3).contains(&reader.unread_share()));
    let first = reader.next_frame().expect("a frame");
    let seen = (first.at_ns, first.is_outbound, first.bytes);
    assert_eq!(seen, (5, true, &b"hello"[..]));
    let second = reader.next_frame().expect("a frame");
    let seen = (second.bytes, second.wire_bytes, second.missed);
    assert_eq!(seen, (&[7; 32][..], 1500, 0));
    assert_eq!(reader.next_frame(), None);
    assert_eq!((reader.behind(), reader.unread_share()), (0, 0.0));
}

#[test]
fn dropped_frame_tells_why_until_it_is_published() {
    let (mut log, mut reader) = pair(64, 32);
    let records = [1, 2, 3].map(|at| log.write(at, false, b"x", 1));
    log.drop_record(records[0], 2);
    log.publish();
    log.drop_record(records[1], 1);
    let reasons = [(); 3].map(|()| {
        reader
            .next_frame()
            .and_then(|frame| frame.reason.map(str::to_owned))
    });
    assert_eq!(reasons, [Some("drop_second".to_owned()), None, None]);
}

#[test]
fn reader_that_is_too_slow_learns_how_many_it_missed() {
    let (mut log, mut reader) = pair(64, 32);
    for at in 0..100 {
        log.write(at, false, &[1; 32], 32);
        log.publish();
    }
    assert_eq!((reader.behind(), reader.unread_share()), (100, 1.0));
    let next = reader.next_frame().expect("a frame");
    assert_eq!(next.missed, next.at_ns, "all before it");
    let mut last = next.at_ns;
    while let Some(next) = reader.next_frame() {
        assert_eq!((next.at_ns, next.missed), (last + 1, 0));
        last = next.at_ns;
    }
    assert_eq!((last, reader.behind()), (99, 0));
}

/// The log has room for eight records. An overtaken reader goes on where at least two of the newest
/// four are left, so that the writer does not overtake it again at once.
#[test]
fn overtaken_reader_goes_on_a_quarter_of_the_log_behind_the_writer() {
    let (mut log, _) = pair(64, 32);
    for at in 0..100 {
        log.write(at, false, &[1; 32], 32);
        log.publish();
        if at >= 16 {
            let resume = log.words.load(RESUME);
            assert!((8..=32).contains(&(log.published - resume)), "{at}");
        }
    }
}

#[test]
fn batch_that_is_longer_than_the_log_keeps_its_newest_frames() {
    let (mut log, mut reader) = pair(64, 32);
    let records: Vec<Record> = (0..100)
        .map(|at| log.write(at, false, &[1; 32], 32))
        .collect();
    log.drop_record(records[0], 1);
    log.publish();
    let next = reader.next_frame().expect("a frame");
    assert_eq!((next.missed, next.reason), (next.at_ns, None));
    assert!(next.at_ns > 90, "{}", next.at_ns);
}

#[test]
fn frames_that_are_read_while_others_are_written_are_whole() {
    const FRAMES_WRITTEN: u64 = 30_000;
    let (mut log, mut reader) = pair(256, 64);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for at in 0..FRAMES_WRITTEN {
                log.write(at, false, &[at as u8; 64], 64);
                log.publish();
            }
        });
        let (mut read, mut missed) = (0, 0);
        loop {
            if let Some(frame) = reader.next_frame() {
                assert!(frame.bytes.iter().all(|byte| *byte == frame.at_ns as u8));
                (read, missed) = (read + 1, missed + frame.missed);
                assert_eq!(read + missed, frame.at_ns + 1);
            } else if read + missed + reader.behind() == FRAMES_WRITTEN {
                break;
            }
        }
    });
}

#[test]
fn later_reader_may_ask_for_longer_frames() {
    let (mut log, mut reader) = pair(256, 8);
    log.set_snap(1 << 20);
    log.write(1, false, &[3; 400], 400);
    log.publish();
    let room = (256 / 4 - HEAD_WORDS) * 8;
    assert_eq!(log.snap(), room);
    let frame = reader.next_frame().expect("a frame");
    assert_eq!((frame.bytes.len(), frame.wire_bytes), (400, 400));
}

#[test]
fn files_that_are_no_log_are_refused() {
    let words = StatWords::create(RECORDS + 64).expect("a file");
    let file = words.file().try_clone_to_owned().expect("a copy");
    assert_eq!(FrameLogReader::open(file).err(), Some(Errno::INVAL));
    assert_eq!(FrameLog::create(8, 1500, &[]).err(), Some(Errno::INVAL));
}

#[test]
fn reader_cannot_write_nor_shorten_the_log() {
    let (log, _) = pair(64, 32);
    let file = log.file().try_clone_to_owned().expect("a copy");
    assert_eq!(rustix::io::write(&file, b"x"), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&file, 0), Err(Errno::PERM));
}

#[test]
fn file_is_told_from_another() {
    let (log, reader) = pair(64, 32);
    let (other, _) = pair(64, 32);
    assert!(reader.is_of(log.file()));
    assert!(!reader.is_of(other.file()));
}

proptest! {
    /// A hostile writer may put anything into the words of a log. Each call of the reader returns,
    /// and a frame is never longer than the format allows.
    #[test]
    fn any_words_are_read_without_harm(
        words in proptest::collection::vec((0..RECORDS + 64, any::<u64>()), 0..200),
        small in proptest::collection::vec((0..RECORDS + 64, 0..80_u64), 0..200),
    ) {
        let file = StatWords::create(RECORDS + 64).expect("a file");
        let write = |all: &[(usize, u64)]| all.iter().for_each(|(at, word)| file.store(*at, *word));
        write(&words);
        file.store(0, MAGIC);
        let copy = file.file().try_clone_to_owned().expect("a copy");
        let mut reader = FrameLogReader::open(copy).expect("a log by its first word");
        write(&small);
        for _ in 0..200 {
            if let Some(frame) = reader.next_frame() {
                prop_assert!(frame.bytes.len() <= LOG_FRAME_BYTES_MAX);
                prop_assert!(frame.reason.is_none_or(|name| name.len() <= LOG_REASON_BYTES));
            }
            let _ = reader.behind();
        }
    }
}
