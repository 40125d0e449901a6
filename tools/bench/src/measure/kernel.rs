//! Limits that the kernel sets to a side with kernel sockets, by epoll or io_uring.

use rustix::process::{Resource, Rlimit};

use crate::measure::Plan;

/// Least backlog of a listener, in connections. That of Millstream's server is larger, but neither
/// is below the plan's number of connections.
const BACKLOG: usize = 4_096;
/// Descriptors of a side beside those of its connections.
const DESCRIPTORS_SPARE: usize = 64;

/// Backlog of a listener. No connection of a crowd that comes at once is turned away, as far as
/// `net.core.somaxconn` allows.
pub fn backlog(plan: &Plan) -> i32 {
    i32::try_from(BACKLOG.max(plan.connections)).unwrap_or(i32::MAX)
}

/// Number of descriptors that a side may have open at once. A client that has gone on to the next
/// connection may be ahead of a server that has not closed the last.
pub fn descriptors(plan: &Plan) -> usize {
    2 * plan.connections + plan.idle + DESCRIPTORS_SPARE
}

/// Raises the limit of descriptors to what the plan needs, or as far as we may: connections that do
/// not fit will fail. Returns the limit, which processes that are started later inherit.
pub fn allow_descriptors(plan: &Plan) -> u64 {
    let wanted = descriptors(plan) as u64;
    let limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return limit.current.unwrap_or(u64::MAX);
    }
    let raised = Rlimit {
        current: Some(wanted),
        maximum: limit.maximum.map(|maximum| maximum.max(wanted)),
    };
    let most = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // The first call may be refused, because raising the maximum takes a privilege.
    let _ = rustix::process::setrlimit(Resource::Nofile, raised)
        .or_else(|_| rustix::process::setrlimit(Resource::Nofile, most));
    let limit = rustix::process::getrlimit(Resource::Nofile);
    limit.current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_that_is_too_low_is_raised() {
        let before = rustix::process::getrlimit(Resource::Nofile);
        let plan = Plan {
            connections: 1_000,
            ..Plan::default()
        };
        let low = Rlimit {
            current: Some(256),
            maximum: before.maximum,
        };
        rustix::process::setrlimit(Resource::Nofile, low).unwrap();
        let allowed = allow_descriptors(&plan);
        assert_eq!(allowed, descriptors(&plan) as u64);
        let after = rustix::process::getrlimit(Resource::Nofile);
        assert_eq!(after.current, Some(descriptors(&plan) as u64));
        rustix::process::setrlimit(Resource::Nofile, before).unwrap();
    }
}
