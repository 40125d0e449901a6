//! Every limit of this crate, with what happens when it is reached.

/// Readers that are connected at once. Further connections are closed.
pub const CLIENTS_MAX: usize = 16;
/// Time after which a reader that sends nothing makes room for another, in ms.
pub const SILENT_MS_MAX: u64 = 60_000;
/// The same for a reader that has not asked anything since it connected, in ms. Tools ask at once.
pub const FIRST_REQUEST_MS_MAX: u64 = 1_000;
/// Requests to one context without an answer. Further ones fail with `AGAIN`.
pub const MAILBOX_SLOTS: usize = 8;
/// Requests that a context answers in one turn. Further ones wait for its next turn.
pub const ANSWERS_PER_TURN: usize = 1;
/// Bytes of a request behind its header. A longer packet is refused and its reader disconnected.
pub const REQUEST_BYTES_MAX: usize = 1024;
/// Bytes of an answer behind its header. Contexts put what does not fit into the next answer.
pub const ANSWER_BYTES_MAX: usize = 32 * 1024;
/// Vectors in the statistics file: contexts, and their ports behind the first. Further ones run
/// without statistics.
pub const CONTEXTS_MAX: usize = 128;
/// Names in the directory. Further names are left out.
pub const ENTRIES_MAX: usize = 400;
/// Bytes of all names, helps and units. What does not fit is left out.
pub const TEXT_BYTES_MAX: usize = 48 * 1024;
/// Words of one context's values. Names that would lie beyond are left out.
pub const VECTOR_WORDS: usize = 1024;
/// Buckets of a histogram: bucket *n* counts values below 2^*n*, the last one all others.
pub const BUCKETS: usize = 40;
/// Words of the largest file that a reader maps.
pub const FILE_WORDS_MAX: usize = 1 << 20;
/// Bytes of the command's name in the file.
pub const COMMAND_BYTES: usize = 64;
/// Bytes of a port's name in the file.
pub const PORT_BYTES: usize = 64;
/// Time that a reader waits for an answer, in ms; then it fails with `TIMEDOUT`.
pub const ANSWER_MS_MAX: u64 = 2_000;
/// Sockets of one directory that a reader examines. Further ones are ignored.
pub const SOCKETS_MAX: usize = 4096;
