//! Memory of a process, as the kernel counts it.

use std::fs;

/// Bytes that a process holds, shared pages by its share; none if the kernel does not say.
pub fn held_bytes(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find(|line| line.starts_with("Pss:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_touch_counts() {
        let before = held_bytes(std::process::id()).unwrap();
        let touched = std::hint::black_box(vec![1u8; 64 << 20]);
        let after = held_bytes(std::process::id()).unwrap();
        // Memory that other tests free meanwhile counts against it.
        assert!(after >= before + (32 << 20), "{before} {after}");
        drop(touched);
        assert_eq!(held_bytes(u32::MAX), None);
    }
}
