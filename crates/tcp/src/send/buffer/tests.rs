//! The arithmetic of buffer sizes, compared with its definition.

use super::{RUN_BYTES_MAX, RUN_OVERHEAD, RunLayout};
use crate::buffers::{space_for, window_of};

#[test]
fn space_and_window_are_inverse() {
    for ratio in [1, 65, 128, 162, 255] {
        let space = space_for(100_000, ratio);
        assert!((99_000..=100_000).contains(&window_of(space as i64, ratio)));
    }
}

/// Payload that `memory` bytes hold in runs of `run` bytes.
fn payload(memory: u32, run: u32) -> u32 {
    (u64::from(memory) * u64::from(run) / u64::from(run + RUN_OVERHEAD)) as u32
}

#[test]
fn runs_fill_half_of_the_largest_window() {
    for (mss, window_max, bytes) in [
        // Runs consist of whole segments, at least one.
        (1000, 60_000, 30_000),
        (1000, 59_998, 29_000),
        (1000, 1_500, 1000),
        // A small window is not halved.
        (100, 536, 500),
        (100, 537, 200),
        // The largest run, with any window.
        (1460, 1 << 30, 64_240),
        (1, 1 << 30, RUN_BYTES_MAX as u16),
        (0, 1 << 30, RUN_BYTES_MAX as u16),
    ] {
        let runs = RunLayout::new(mss, window_max, 1 << 20);
        assert_eq!(runs.bytes, bytes, "{mss} {window_max}");
    }
}

#[test]
fn runs_of_a_buffer_are_those_of_its_memory() {
    for mss in [1, 88, 536, 1000, 1460, 8960] {
        for window_max in [0, 500, 3000, 60_000, 1 << 20] {
            for memory in [0, 4608, 16_384, 87_040, 1 << 20, 4 << 20] {
                let runs = RunLayout::new(mss, window_max, memory);
                let bytes = u32::from(runs.bytes);
                let context = std::format!("{mss} {window_max} {memory} {runs:?}");
                assert_eq!(runs.size, payload(memory, bytes), "{context}");
                assert_eq!(
                    runs.wake(),
                    payload(memory - memory / 3, bytes),
                    "{context}"
                );
                for sent in (0..runs.size).step_by(1 + runs.size as usize / 50) {
                    let free = (runs.size - sent).div_ceil(bytes) * bytes;
                    assert_eq!(runs.free_behind(sent), free, "{sent} {context}");
                }
            }
        }
    }
}
