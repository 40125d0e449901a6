//! Fairness of like flows at a bottleneck: Jain's index over the bytes that each carried in a
//! window of time.

/// Begin of the window in ns: the flows have found their shares.
pub const FROM_NS: u64 = 20_000_000_000;
/// End of the window in ns.
pub const TO_NS: u64 = 110_000_000_000;
/// Least index that passes; 1 is perfect. Two flows of which one has three times the other's share
/// have 0.8.
const INDEX_MIN: f64 = 0.8;
/// Least index for BBR version 1. Its flows share less evenly after measuring different shortest
/// round trips: of three, one may stay at a fifth of the others' (decision 0018).
const INDEX_MIN_BBR: f64 = 0.7;
/// Least part of the bottleneck's rate that all flows must use together.
pub const USE_MIN: f64 = 0.7;

/// The least index for flows of one algorithm.
#[must_use]
pub fn index_min(congestion: tcp::CongestionAlgorithm) -> f64 {
    match congestion {
        tcp::CongestionAlgorithm::Bbr => INDEX_MIN_BBR,
        _ => INDEX_MIN,
    }
}

/// Jain's index: 1 if all shares are equal, 1/n if one of n flows has everything.
#[must_use]
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 {
        return 0.0;
    }
    sum * sum / (squares * shares.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_of_known_shares() {
        assert!((jain(&[2.0, 2.0, 2.0]) - 1.0).abs() < 1e-9);
        assert!((jain(&[1.0, 0.0]) - 0.5).abs() < 1e-9);
        assert!((jain(&[3.0, 1.0]) - 0.8).abs() < 1e-9);
        assert!(jain(&[]).abs() < 1e-9);
    }
}
