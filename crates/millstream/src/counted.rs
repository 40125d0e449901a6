//! The counters of a stack as one list of names and values, for display and for C.

use std::io;

use stack::context::Report;

use crate::context::Context;

impl Context {
    /// Every counter with its name: the stack's, TCP's, the port's and the neighbours', in this
    /// order. They begin at zero with the context and grow; a value of the port may be a state
    /// (`dpdk_buffers_free`).
    ///
    /// # Errors
    /// Errors of waiting for the stack's answer.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let counters = context.counters()?;
    /// assert!(counters.iter().any(|(name, _)| *name == "rx_no_buffer"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn counters(&self) -> io::Result<Vec<(&'static str, u64)>> {
        self.report().map(|report| rows(&report))
    }
}

fn rows(report: &Report) -> Vec<(&'static str, u64)> {
    let mut rows: Vec<(&'static str, u64)> = report.stack.rows().collect();
    rows.extend(report.tcp.rows());
    rows.extend_from_slice(report.port.named());
    let neighbours = &report.neighbours;
    rows.extend([
        ("neighbour_failed", neighbours.failed),
        ("neighbour_evicted", neighbours.evicted),
        ("neighbour_table_full", neighbours.table_full),
        ("neighbour_waiting_full", neighbours.waiting_full),
        ("neighbour_frames_dropped", neighbours.frames_dropped),
    ]);
    rows
}
