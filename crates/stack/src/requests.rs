//! Requests of the application: jobs of its sockets, active opens, binds and options.

pub(crate) mod answers;
pub(crate) mod binds;
pub(crate) mod connect;
pub(crate) mod job_queue;
pub(crate) mod options;

use ring::chunk::MagazineFeed;
use ring::socket_block::SocketId;
use ring::spsc::{Consumer, Producer};
use ring::stock::Stock;

use crate::context::{Placed, Report};
use crate::limits::JOBS_PER_TURN;

/// The stack's ends of the queues and memory that it shares with its application.
pub(crate) struct StackSide {
    pub jobs: Consumer<SocketId>,
    pub controls: Consumer<Placed>,
    pub socket_stock: Stock<SocketId>,
    pub chunk_stock: MagazineFeed,
}

/// The state of the stage that applies requests.
pub(crate) struct AppRequests {
    pub app: StackSide,
    /// Jobs taken from the queue that are not applied yet.
    job_batch: Vec<SocketId>,
    /// Queues for the reports that were requested in this turn.
    pub reports: Vec<Producer<Report>>,
}

impl AppRequests {
    pub fn new(app: StackSide) -> Self {
        Self {
            app,
            job_batch: Vec::with_capacity(JOBS_PER_TURN),
            reports: Vec::new(),
        }
    }
}
