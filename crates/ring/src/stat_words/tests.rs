//! Two mappings of one file, and untrusted files.

use super::*;

fn reader(words: &StatWords) -> StatWords {
    let file = words.file().try_clone_to_owned().expect("a copy");
    StatWords::open(file, 1 << 20).expect("a mapping")
}

#[test]
fn reader_sees_what_the_writer_stores_and_cannot_store() {
    let words = StatWords::create(16).expect("a file");
    let reader = reader(&words);
    words.store(3, 7);
    assert_eq!(reader.load(3), 7);
    reader.store(3, 8);
    assert_eq!(words.load(3), 7);
    assert_eq!((reader.len(), reader.load(16)), (16, 0));
    words.store(16, 1);
}

#[test]
fn descriptor_that_was_handed_over_refuses_a_writable_mapping() {
    let words = StatWords::create(16).expect("a file");
    let file = words.file().try_clone_to_owned().expect("a copy");
    let access = ProtFlags::READ | ProtFlags::WRITE;
    assert!(StatWords::map(file, 16, access).is_err());
    assert_eq!(ftruncate(words.file(), 0), Err(Errno::PERM));
}

#[test]
fn files_that_are_not_sealed_memory_are_refused() {
    let (pipe, _other) = rustix::pipe::pipe().expect("a pipe");
    assert_eq!(StatWords::open(pipe, 16).err(), Some(Errno::INVAL));
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let open = memfd_create("open", flags).expect("a file");
    ftruncate(&open, 64).expect("a length");
    assert_eq!(StatWords::open(open, 16).err(), Some(Errno::INVAL));
    let long = StatWords::create(17).expect("a file");
    let file = long.file().try_clone_to_owned().expect("a copy");
    assert_eq!(StatWords::open(file, 16).err(), Some(Errno::INVAL));
}

#[test]
fn group_that_changes_while_it_is_read_is_read_whole() {
    const ROUNDS: u64 = 20_000;
    let words = StatWords::create(8).expect("a file");
    let reader = reader(&words);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                words.write_group(0, |words| (1..8).for_each(|at| words.store(at, round)));
            }
        });
        let mut last = 0;
        while last < ROUNDS {
            let group = reader.read_group(0, |words| [1, 4, 7].map(|at| words.load(at)));
            let Some(group) = group else { continue };
            assert!(group.iter().all(|one| *one == group[0]) && group[0] >= last);
            last = group[0];
        }
    });
}

#[test]
fn group_whose_writer_died_in_the_middle_is_given_up() {
    let words = StatWords::create(8).expect("a file");
    words.store(0, 3);
    assert_eq!(reader(&words).read_group(0, |words| words.load(1)), None);
}

#[test]
fn bytes_are_stored_whole_or_not_at_all() {
    let words = StatWords::create(3).expect("a file");
    let last = words.len() - 1;
    words.store_bytes(last, &[1, 2, 3]);
    assert_eq!(words.load(last), 0x03_0201);
    words.store_bytes(last, &[9; 9]);
    assert_eq!(words.load(last), 0x03_0201, "beyond the end");
    words.store_bytes(usize::MAX, &[9; 9]);
    words.store_bytes(0, &[4; 11]);
    assert_eq!(
        [0, 1].map(|at| words.load(at)),
        [0x0404_0404_0404_0404, 0x04_0404]
    );
}
