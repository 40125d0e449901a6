//! Every limit of `mill`, with its effect. Read by all modules; owns no code.

/// Bytes of a request's head, from the method to the blank line. More: 431, and the connection
/// closes.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Bytes of the request line. More: 414, and the connection closes.
pub const REQUEST_LINE_BYTES_MAX: usize = 8 * 1024;
/// Header fields of a request or response. More: 431 to a request; a response is refused.
pub const HEADERS_MAX: usize = 96;
/// Bytes of a request's content, which are read and dropped. More: 413, and the connection closes.
pub const REQUEST_CONTENT_BYTES_MAX: u64 = 64 * 1024;
/// Blank lines before a request. More: 400, and the connection closes.
pub const BLANK_LINES_MAX: u32 = 4;
/// Bytes of responses to pipelined requests that are gathered before a write.
pub const GATHERED_BYTES_MAX: usize = 64 * 1024;
/// Size of the input buffer that an idle connection keeps; a larger one is freed.
pub const IDLE_BUFFER_BYTES_MAX: usize = 1024;

/// Bytes taken from a connection by one read; one buffer per worker.
pub const READ_BYTES: usize = 64 * 1024;
/// Bytes taken from a file by one read; one buffer per worker.
pub const FILE_READ_BYTES: usize = 128 * 1024;
/// Bytes that one connection moves in one visit before the next one's.
pub const VISIT_BYTES_MAX: usize = 1024 * 1024;
/// Connections taken from a listener in one visit: all that wait. Each of them waits like a request
/// on an accepted connection, and the listener has one visit per round of those.
pub const ACCEPT_BATCH_MAX: usize = BACKLOG_DEFAULT;
/// Events taken from a poll at once.
pub const EVENTS_MAX: usize = 1024;

/// Size of the largest cached file in bytes. Larger files are read while they are sent.
pub const CACHED_FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes of all files in one worker's cache. Beyond it the least recently used ones are dropped.
pub const CACHE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Documents in one worker's cache, including open files. Beyond it the least recently used one is
/// dropped.
pub const CACHE_DOCUMENTS_MAX: usize = 512;
/// Time for which a cached document is used without checking the file, in ns.
pub const CACHE_FRESH_NS: u64 = 1_000_000_000;

/// Connections of one worker. At the limit it stops accepting until one ends.
pub const CONNECTIONS_MAX_DEFAULT: usize = 65_536;
/// Backlog of a listener: connections that may wait to be accepted.
pub const BACKLOG_DEFAULT: usize = 16_384;
/// Time that a connection may wait for its next request, in ns. Then it is closed.
pub const IDLE_NS: u64 = 60_000_000_000;
/// Time between the first and the last byte of a request's head, in ns. Later: 408, and the
/// connection closes.
pub const HEAD_NS: u64 = 15_000_000_000;
/// Time without progress in sending a response, in ns. Then the connection is reset.
pub const SEND_NS: u64 = 60_000_000_000;
/// Time for which a refused peer's further bytes are read and dropped, in ns, so that the peer can
/// read the answer.
pub const LINGER_NS: u64 = 2_000_000_000;

/// Size of a response's head that `mill get` accepts, in bytes. More: the response is refused.
pub const RESPONSE_HEAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a chunk-size line or trailer line. More: the response is refused.
pub const CHUNK_LINE_BYTES_MAX: usize = 4096;
/// Concurrent connections of `mill get -c` and of the benchmarks.
pub const CLIENT_CONNECTIONS_MAX: usize = 60_000;

const _: () = assert!(REQUEST_LINE_BYTES_MAX <= HEAD_BYTES_MAX);
const _: () = assert!(IDLE_BUFFER_BYTES_MAX <= HEAD_BYTES_MAX);
const _: () = assert!(CACHED_FILE_BYTES_MAX <= CACHE_BYTES_MAX);
const _: () = assert!(HEAD_NS <= IDLE_NS);

/// Size of a service's answer that `mill mux status` reads, in bytes.
pub const MUX_ANSWER_BYTES_MAX: usize = 16 << 20;
/// Time that `mill mux status` waits for a service, in s.
pub const MUX_ANSWER_S_MAX: u64 = 5;
/// Time that `mill mux stop` waits until the service has removed what it built, in s. Then the
/// command fails and unmounts nothing.
pub const MUX_STOP_S_MAX: u64 = 60;

/// Nesting of parentheses and negations in a filter of `mill ss`. More: the filter is refused.
pub const FILTER_DEPTH_MAX: usize = 64;
/// Flows of one process that `mill ss` shows. Others are omitted.
pub const FLOWS_MAX: usize = 1 << 22;
/// Answers of one context that `mill ss` asks for. It gives up on a process that never reports the
/// end.
pub const LIST_STEPS_MAX: usize = 1 << 20;

/// Rows of `mill ss` that are aligned with each other. Then they leave, and their memory is free.
pub const TABLE_BLOCK_ROWS: usize = 4096;
/// Connections whose stories `mill ss -v` shows. More: the filter is refused as too wide.
pub const STORIES_SHOWN_MAX: usize = 64;
/// Interval between two looks of `mill trace`, in ms.
pub const TRACE_MS: u64 = 200;

/// Time that `mill top` and `mill metrics` wait for a context's fresh values, in ms. Then they show
/// the last ones.
pub const PUBLISH_MS_MAX: u64 = 300;
/// Clients of `mill metrics --listen` at once. At the limit the one that has been there for longest
/// is disconnected.
pub const SCRAPES_MAX: usize = 64;
/// Bytes of a scrape's head that `mill metrics` reads. More: 431.
pub const SCRAPE_HEAD_BYTES_MAX: usize = 8 * 1024;
/// Headers of a scrape. More: 431.
pub const SCRAPE_HEADERS_MAX: usize = 64;
/// Time without progress of a scrape's request or answer, in ms. Then half a request is answered
/// with 408, and the connection closes.
pub const SCRAPE_MS_MAX: u64 = 2_000;

/// Files of a capture's ring that is not told how many.
pub const CAPTURE_FILES: u32 = 10;
/// Files of a capture's ring. More: refused.
pub const CAPTURE_FILES_MAX: u32 = 10_000;
/// Bytes of a frame that a capture keeps at most. More: refused.
pub const CAPTURE_SNAP_MAX: u32 = 65_535;
/// Least number of bytes of a frame that are logged if there is a filter.
pub const FILTER_BYTES_MIN: u32 = 256;
/// Frames of one context that a capture takes before the next context's.
pub const CAPTURE_ROUND_FRAMES: usize = 1_024;
