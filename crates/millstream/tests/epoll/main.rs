//! `Poll` against Linux's epoll: the same script is played on our sockets and on the kernel's, and
//! must give the same record.

#[path = "../common/mod.rs"]
mod common;

mod kernels;
mod ours;
mod script;

use millstream::Crank;

use common::lab::turn;
use script::{SCRIPTS, Step, World};

fn record(world: &mut dyn World, steps: &[Step]) -> Vec<String> {
    let mut record = Vec::new();
    for step in steps {
        let said = world.step(*step);
        world.settle();
        record.push(format!("{step:?}: {said}"));
    }
    record
}

fn compare(crank: Crank) {
    let mut different = Vec::new();
    for (name, steps) in SCRIPTS {
        let want = record(&mut kernels::Kernels::new(), steps);
        // A stack on a thread of its own may be late on a loaded machine. The whole script is then
        // played again.
        let got = (0..3)
            .map(|_| record(&mut ours::Ours::new(crank), steps))
            .find(|got| *got == want || crank == Crank::Inline)
            .unwrap_or_else(|| record(&mut ours::Ours::new(crank), steps));
        if want != got {
            let lines: Vec<String> = want
                .iter()
                .zip(&got)
                .map(|(want, got)| match want == got {
                    true => format!("    {want}"),
                    false => format!("    {want}\n !! ours: {got}"),
                })
                .collect();
            different.push(format!("{name}:\n{}", lines.join("\n")));
        }
    }
    let total = SCRIPTS.len();
    assert!(
        different.is_empty(),
        "{crank:?}: {} of {total} scripts differ\n{}",
        different.len(),
        different.join("\n")
    );
}

#[test]
fn inline_poll_does_what_epoll_does() {
    let _turn = turn("inline_poll_does_what_epoll_does");
    compare(Crank::Inline);
}

#[test]
fn dedicated_poll_does_what_epoll_does() {
    let _turn = turn("dedicated_poll_does_what_epoll_does");
    compare(Crank::Dedicated);
}
