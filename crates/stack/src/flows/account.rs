//! The memory that an idle connection costs a stack, part by part; a test limits the sum.
//!
//! Only touched memory counts, in a stack whose socket table is full. Slots, chunks, records and
//! ranges belong to busy connections and do not count. The slots that are always ready count in
//! equal parts.

use ring::socket_block::SOCKET_BLOCK_BYTES;
use ring::socket_block::SocketId;

use crate::flows::dormant::BLOCK_BYTES_ALL;
use crate::flows::flow_table::FlowTable;
use crate::flows::slot::SLOT_BYTES;
use crate::flows::sockets::LOCATION_BYTES;
use crate::limits::Limits;
use crate::schedule::timers::NODE_BYTES;
use crate::schedule::tx_lists::LINK_BYTES;

/// Blocks of a packed connection that was accepted over IPv4 and never carried payload. One that
/// did takes three or four.
pub const PACKED_BLOCKS_IDLE: usize = 2;

/// Bytes of each named part per connection, for `connections` idle connections under `limits`.
#[must_use]
pub fn idle_connection(limits: &Limits, connections: usize) -> Vec<(&'static str, f64)> {
    let share = |bytes: usize| bytes as f64 / connections.max(1) as f64;
    vec![
        ("place in the socket table", LOCATION_BYTES as f64),
        (
            "the connection, packed",
            (PACKED_BLOCKS_IDLE * BLOCK_BYTES_ALL) as f64,
        ),
        ("slots held ready", share(limits.warm_sockets * SLOT_BYTES)),
        ("flow table", share(FlowTable::bytes(limits.flows_max()))),
        (
            "block shared with the application",
            SOCKET_BLOCK_BYTES as f64,
        ),
        ("timer", NODE_BYTES as f64),
        ("transmit list", LINK_BYTES as f64),
        ("place in the event queue", size_of::<SocketId>() as f64),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_of_a_million_costs_the_stack_no_more_than_this() {
        let million = 1_000_000;
        let rows = idle_connection(&Limits::for_connections(million), million);
        let sum: f64 = rows.iter().map(|(_, bytes)| bytes).sum();
        for (name, bytes) in &rows {
            println!("{bytes:7.1}  {name}");
        }
        println!("{sum:7.1}  in all");
        assert!(sum <= 360.0, "{sum}");
    }
}
