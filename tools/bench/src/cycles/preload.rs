//! Instructions of an exchange under the library that `mill run` preloads, against those of the
//! same program on the crate `posix`.

use super::Cost;
use super::callgrind::{self, Load};
use crate::frame::process;
use crate::frame::{Goal, Outcome};

/// Exchanges of the shorter run: tables have reached their size.
const FIRST: u64 = 100;
/// Exchanges that the longer run has more than the shorter one.
const MORE: u64 = 1_000;
/// The variable with the settings of `mill run --lo`.
const SETTINGS: (&str, &str) = ("MILLSTREAM_RUN", "wire=loopback\nlo");
/// The library, which is built into the directory of `bench`.
const LIBRARY: &str = "libmillstream_preload.so";

/// Counts both programs, each with both ways to wait.
pub fn measure(outcome: &mut Outcome) -> Result<(), String> {
    let library = process::beside(LIBRARY)?.display().to_string();
    let preloaded = [("LD_PRELOAD", library.as_str()), SETTINGS];
    for waits in ["epoll", "recv"] {
        let direct = count("posix", waits, &[])?;
        let under = count("libc", waits, &preloaded)?;
        let (of_direct, of_under) = (direct.per_transaction, under.per_transaction);
        let found = (
            of_under / of_direct,
            format!("{of_under:.0} against {of_direct:.0}"),
        );
        let name = format!("exchange, waits in {waits}");
        eprintln!("{name}: {} ({:.3})", found.1, found.0);
        let goal = Goal::at_most(
            format!("{name}: instructions under the preloaded library against `posix` directly"),
            (1.10, 1.05),
        );
        outcome.judge(goal, Some(found));
    }
    Ok(())
}

/// Counts two runs. The cost is their difference.
fn count(through: &str, waits: &str, variables: &[(&str, &str)]) -> Result<Cost, String> {
    let run = |transactions: u64| {
        let words = [
            ("--through", through.to_owned()),
            ("--waits", waits.to_owned()),
            ("--transactions", transactions.to_string()),
        ];
        let words = words.into_iter();
        let words: Vec<String> = words
            .flat_map(|(option, value)| [option.to_owned(), value])
            .collect();
        callgrind::count(&Load {
            command: &["exchange"],
            words: &words,
            within: None,
            variables,
        })
    };
    Ok(Cost::between(&run(FIRST)?, &run(FIRST + MORE)?))
}
