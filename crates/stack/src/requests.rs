//! Requests of the application: jobs of its sockets, active opens, binds and options.

pub(crate) mod binds;
pub(crate) mod connect;
pub(crate) mod job_queue;
pub(crate) mod options;
