//! Every atomic of Millstream: SPSC queues, socket byte rings, doorbells.
//!
//! Two parties meet in this crate: the *stack* (one core's turn) and the *application* (the thread
//! that reads and writes sockets). With the inline crank, the application's thread runs both; while
//! it is away, another thread runs the stack. All that the two share goes through the types below.
//! No other crate names an atomic.
//!
//! | module | what it is |
//! |---|---|
//! | [`raw`] | raw memory with known bounds that another party may rewrite |
//! | [`checksum`] | Internet checksum in SIMD, fused with the copy |
//! | [`spsc`] | bounded single-producer single-consumer queue |
//! | [`memory`] | the one memory file of a context |
//! | [`stock`] | a queue filled as far as its recent use asks for |
//! | [`chunk`] | chunk ids, the stack's pool, the application's magazine |
//! | [`socket_block`] | the 128 bytes that a socket's two ends share |
//! | [`byte_ring`] | the byte streams that run over block and chunks |
//! | [`doorbell`] | the bell that wakes a sleeping stack |
//! | [`trylock`] | the crank: one compare-and-swap per turn |
//! | [`tsc`] | the time-stamp counter |
//! | [`waiter`] | a thread that sleeps until another one calls it |
//! | [`published`] | relaxed words for counters and watchdogs |
//! | [`due`] | a time that others may bring forward to now |
//! | [`stat_words`] | a sealed file of words with one writer, and its sequence lock |
//! | [`frame_log`] | a log of frames for other processes; neither end waits |
//! | [`last_cpu`] | whether a polling thread shares its CPU with a helper |
//! | [`flow_owners`] | which context has a flow, for those that do not |
//! | [`port_masks`] | which contexts listen at a port |
//! | [`prefetch`] | asking for memory before it is needed |
//! | [`huge_pages`] | the rule for the pages under a stack's memory |
//! | [`tables`] | large tables of fixed room, on huge pages |
//! | [`driver`] | accessors for rings that others define (AF_XDP, memif) |
//!
//! Unsafe code stands only in files named `*_unsafe.rs`. The crate is checked
//! with loom (`RUSTFLAGS="--cfg loom"`), Miri, and oracle property tests.

mod sync;

pub mod byte_ring;
pub mod checksum;
pub mod chunk;
mod chunk_format;
#[path = "copy_unsafe.rs"]
mod copy;
pub mod doorbell;
#[path = "driver_unsafe.rs"]
pub mod driver;
pub mod due;
#[path = "fence_unsafe.rs"]
mod fence;
#[cfg(not(any(miri, loom)))]
#[path = "fill_unsafe.rs"]
mod fill;
pub mod flow_owners;
pub mod frame_log;
pub mod huge_pages;
pub mod last_cpu;
pub mod limits;
pub mod memory;
pub mod port_masks;
#[path = "prefetch_unsafe.rs"]
pub mod prefetch;
pub mod published;
#[path = "raw_unsafe.rs"]
pub mod raw;
pub mod socket_block;
#[path = "spsc_unsafe.rs"]
pub mod spsc;
#[path = "stat_words_unsafe.rs"]
pub mod stat_words;
pub mod stock;
#[path = "tables_unsafe.rs"]
pub mod tables;
#[path = "trylock_unsafe.rs"]
pub mod trylock;
#[path = "tsc_unsafe.rs"]
pub mod tsc;
pub mod waiter;
#[path = "zeroed_unsafe.rs"]
mod zeroed;
