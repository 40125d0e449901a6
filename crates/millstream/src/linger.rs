//! The end of a stack: its connections close in order for a while, and the others are reset.

use packetio::Clock;
use stack::Stack;

use crate::heir::Heir;
use crate::limits::{FAREWELL_NS_MAX, LINGER_NS};

/// Turns the stack until no connection is left or the time is over, then resets the remaining ones.
///
/// Connections in FIN_WAIT_2 have delivered all their data. Their peers may keep their side open
/// for as long as they like, so the stack waits for them only until [`LINGER_NS`] after the last
/// delivery.
///
/// Returns true if another process has taken over. That process calls `in_heir`.
#[must_use]
pub(crate) fn linger(
    stack: &mut Stack,
    linger_ns: u64,
    clock: &Clock,
    mut heir: Option<Heir>,
    in_heir: &dyn Fn(&mut Stack),
) -> bool {
    let mut delivered_ns = clock.now_ns();
    let until_ns = delivered_ns.saturating_add(linger_ns);
    let heir_ns = heir.map(|heir| delivered_ns.saturating_add(heir.after_ns));
    loop {
        let now_ns = clock.now_ns();
        let turned = stack.turn(now_ns);
        let usage = stack.usage();
        let is_delivered = usage.sockets == 0 && !stack.has_output() && !stack.is_transferring();
        if is_delivered && usage.fin_wait_2 == 0 || stack.is_gone() {
            return false;
        }
        if !is_delivered {
            delivered_ns = now_ns;
        }
        let until_ns = until_ns.min(delivered_ns.saturating_add(LINGER_NS));
        if now_ns >= until_ns {
            say_farewell(stack, clock);
            return false;
        }
        let is_due = heir_ns.is_some_and(|at_ns| now_ns >= at_ns);
        if let Some(heir) = heir.take_if(|_| is_due) {
            let pid = std::process::id();
            if (heir.take_over)() {
                return true;
            }
            if std::process::id() != pid {
                in_heir(stack);
            }
        }
        let asks_ns = heir.and(heir_ns).unwrap_or(until_ns);
        let wake_ns = Some(until_ns.min(asks_ns));
        if !turned.busy && stack.wait(now_ns, wake_ns, &[]).is_err() {
            return false;
        }
    }
}

/// Resets the connections that are still open, in portions that the stack has room for. Further
/// portions follow until the port has taken all segments or [`FAREWELL_NS_MAX`] is over.
#[cold]
fn say_farewell(stack: &mut Stack, clock: &Clock) {
    let until_ns = clock.now_ns() + FAREWELL_NS_MAX;
    let mut next = Some(0);
    loop {
        next = next.and_then(|next| stack.abort_some(next));
        let now_ns = clock.now_ns();
        let turned = stack.turn(now_ns);
        let is_done = next.is_none() && !stack.has_output();
        if is_done || stack.is_gone() || now_ns >= until_ns {
            return;
        }
        // On a virtual clock, waiting makes no room at the port.
        let waits = !turned.busy;
        if waits && (clock.is_virtual() || stack.wait(now_ns, Some(until_ns), &[]).is_err()) {
            return;
        }
    }
}
