//! Repetition: every system once, then every system again, so that all meet the same machine.

use std::fmt::Display;

/// What one system gave, in the order of the rounds; empty after a failure.
pub type Rounds<T> = Vec<Vec<T>>;

/// Runs every system once per round. A system that fails is left out from then on, and `notes` says why.
pub fn alternate<S: Display, T>(
    rounds: u32,
    systems: &[S],
    notes: &mut Vec<String>,
    mut run: impl FnMut(&S) -> Result<T, String>,
) -> Rounds<T> {
    let mut found: Rounds<T> = systems.iter().map(|_| Vec::new()).collect();
    let mut failed = vec![false; systems.len()];
    for _ in 0..rounds {
        for (index, system) in systems.iter().enumerate() {
            if failed[index] {
                continue;
            }
            match run(system) {
                Ok(one) => found[index].push(one),
                Err(cause) => {
                    eprintln!("mill: {system}: {cause}");
                    notes.push(format!("{system}: {cause}"));
                    failed[index] = true;
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_take_turns_and_a_failed_one_stays_away() {
        let (mut order, mut notes) = (String::new(), Vec::new());
        let found = alternate(2, &["a", "b", "c"], &mut notes, |system| {
            order.push_str(system);
            (*system != "b").then_some(1).ok_or("broken".to_owned())
        });
        assert_eq!(order, "abcac");
        assert_eq!(found, [vec![1, 1], vec![], vec![1, 1]]);
        assert_eq!(notes, ["b: broken"]);
    }
}
