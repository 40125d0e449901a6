//! Calls on sockets in every state, with good and bad arguments. One program makes them on the
//! kernel and on Millstream, and its output must be the same.

use super::World;
use crate::run;

const PROGRAM: &str = include_str!("states.py");
const CALLS: &str = include_str!("states_calls.py");
/// A seed; N, of which one call in N is made in each state; and the number of courses of calls.
const ARGUMENTS: [&str; 3] = ["1", "12", "100"];

/// Compares the output for a sample of the calls. Each side runs over localhost in its own
/// namespace.
pub(super) fn compared(world: &World) -> Result<(), String> {
    world.write("states.py", PROGRAM.as_bytes())?;
    world.write("states_calls.py", CALLS.as_bytes())?;
    for namespace in [&world.far, &world.near] {
        // Linux's answer about a group depends on whether there is a route for groups.
        run::output(&mut super::inside(
            namespace,
            &["ip", "route", "replace", "224.0.0.0/4", "dev", "lo"],
        ))?;
    }
    let program = world.path("states.py");
    let mut line = vec!["/usr/bin/python3", &program];
    line.extend(ARGUMENTS);
    let wanted = run::output(&mut super::inside(&world.far, &line))?;
    let mill = world.mill.display().to_string();
    let mut under = vec![mill.as_str(), "run", "--lo", "--"];
    under.extend(line);
    let said = run::output(&mut super::inside(&world.near, &under))?;
    let lines = wanted.lines().zip(said.lines());
    let differ: Vec<String> = lines
        .filter(|(wanted, said)| wanted != said)
        .map(|(wanted, said)| format!("the kernel says `{wanted}`, Millstream `{said}`"))
        .collect();
    match differ.is_empty() {
        _ if wanted.lines().count() != said.lines().count() => {
            Err(format!("Millstream stops after: {:?}", said.lines().last()))
        }
        true => Ok(()),
        false => Err(differ.join("\n")),
    }
}
