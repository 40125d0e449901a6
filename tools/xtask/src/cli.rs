//! The command line of `cargo xtask`. Owned by `main`, read by the chores.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Seconds of CPU time that each fuzz target has in `cargo xtask test`.
const FUZZ_SMOKE_SECONDS: u64 = 20;
/// Seconds of CPU time that each fuzz target has in `cargo xtask fuzz`: as long as a release
/// requires.
const FUZZ_SECONDS: u64 = 3600;
/// Number of mutants that `cargo xtask mutants` draws.
const MUTANTS_COUNT: usize = 100;
const MUTANTS_SEED: u64 = 1;
const MUTANTS_MINUTES: u64 = 60;
const MUTANTS_JOBS: usize = 2;
/// Percent of the mutants that tests must notice.
const MUTANTS_BAR: u32 = 95;

/// The chores of Millstream behind one door.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    disable_help_subcommand = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub chore: Chore,
}

/// The chores, each with its options.
#[derive(Subcommand)]
pub enum Chore {
    /// Install what is missing, build, and run the demo
    Demo(DemoOptions),
    /// Install what is missing, then run every check and test
    Test(TestOptions),
    /// Run everything that CI runs: `test` with nothing left out
    Ci,
    /// Check the rules of STYLE.md that a program can check
    Tidy,
    /// Write the tables of docs/operating.md from the lists of counters, values and log lines
    Docs(DocsOptions),
    /// Check that docs/conformance.md names places and tests that exist
    Conformance,
    /// Check licences, sources and versions of foreign crates (deny.toml)
    Deny,
    /// Run the tests of `ring` under loom: every interleaving at tiny sizes
    Loom,
    /// Run the tests of `ring` under Miri
    Miri,
    /// Run the fuzz targets
    Fuzz(FuzzOptions),
    /// Run a benchmark, release build
    Bench(BenchOptions),
    /// Count the functions and files that a received and a written segment pass
    Path,
    /// Simulate random worlds from seeds: stacks, networks, faults and applications in virtual time
    Sim(PassedOn),
    /// Play packet scripts, in packetdrill's language, on the stack in virtual time or on the
    /// kernel
    Script(PassedOn),
    /// Make small changes to the product that some test should notice, drawn by a seed
    Mutants(MutantOptions),
    /// Run scripts with packetdrill itself, which loads our plug-in
    Packetdrill(PacketdrillOptions),
    /// Load a part of the project for minutes: libmtcp with eight threads, thousands of connections
    /// and clients that vanish; or `mux`: 254 applications behind one `mill mux`; or `observe`: a
    /// server beside all tools that look in; or `programs`: nginx over `mill mux`
    Stress(StressOptions),
    /// Run test suites of other projects, plainly and under `mill run --lo`; only differences count
    Suites(SuitesOptions),
    /// Install libmtcp as a distribution would: library, headers, pkg-config file, manual pages
    Install(InstallOptions),
    /// Build the DPDK plug-in, against the DPDK of this machine
    Dpdk,
    /// Install what the other chores need
    Setup,
    /// Remove what an interrupted run left: namespaces and temporary files
    Clean,
}

/// Options of `cargo xtask docs`.
#[derive(Args)]
pub struct DocsOptions {
    /// Write nothing, and fail if a table is out of date
    #[arg(long)]
    pub check: bool,
}

/// The absolute path of one given relative to the caller's directory, since chores run at the root.
fn absolute(path: &str) -> std::io::Result<PathBuf> {
    std::path::absolute(path)
}

/// Options of `install`.
#[derive(Args)]
pub struct InstallOptions {
    /// Directory in which programs will find it
    #[arg(long, value_name = "DIR", default_value = "/usr/local", value_parser = absolute)]
    pub prefix: PathBuf,
    /// Put everything below this directory, for a package
    #[arg(long, value_name = "DIR", value_parser = absolute)]
    pub destdir: Option<PathBuf>,
    /// Build nothing: install the files of the last release build
    #[arg(long, conflicts_with = "profile_guided")]
    pub no_build: bool,
    /// Directory of the built libraries, in place of the last release build
    #[arg(long, value_name = "DIR", requires = "no_build", value_parser = absolute)]
    pub from: Option<PathBuf>,
    /// Leave out the shared library, so that `-lmtcp` takes the archive: for a tree like mTCP's,
    /// with --prefix TREE/mtcp
    #[arg(long = "static")]
    pub is_static: bool,
    /// Build with a profile of typical runs: this takes two builds and a minute, and saves a fifth
    /// of the CPU time
    #[arg(long)]
    pub profile_guided: bool,
}

/// Options of `demo`; all of them are passed on to `mill demo`.
#[derive(Args, Default)]
pub struct DemoOptions {
    /// Take less than a minute after the build
    #[arg(long)]
    pub quick: bool,
    /// Write the results of the demo to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Build and install nothing: run the binary that is there
    #[arg(long)]
    pub no_build: bool,
}

/// Options of `test`.
#[derive(Args)]
pub struct TestOptions {
    /// Run only the steps with these names
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Leave out the steps with these names
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    pub skip: Vec<String>,
    /// Print the names of the steps and stop
    #[arg(long)]
    pub list: bool,
    /// Seconds of CPU time for each fuzz target
    #[arg(long, value_name = "SECONDS", default_value_t = FUZZ_SMOKE_SECONDS)]
    pub fuzz_seconds: u64,
    /// Run the steps that compute, for the run that waits beside; it gives this itself
    #[arg(long, hide = true)]
    pub beside: bool,
    /// Write the steps with their times and outcomes to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Default for TestOptions {
    fn default() -> Self {
        Self {
            only: Vec::new(),
            skip: Vec::new(),
            list: false,
            fuzz_seconds: FUZZ_SMOKE_SECONDS,
            beside: false,
            json: None,
        }
    }
}

/// Options of `fuzz`.
#[derive(Args)]
pub struct FuzzOptions {
    /// Fuzz targets; without a name all of them
    pub targets: Vec<String>,
    /// Seconds of CPU time for each target
    #[arg(long, value_name = "SECONDS", default_value_t = FUZZ_SECONDS)]
    pub seconds: u64,
}

/// Options of `bench`.
#[derive(Args)]
pub struct BenchOptions {
    /// Build as `cargo build --release` does, without a profile of typical runs
    #[arg(long)]
    pub plain: bool,
    /// Name of the benchmark, and its options, which are passed on unread
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<String>,
}

/// Options of `sim` and of `script`.
#[derive(Args)]
pub struct PassedOn {
    /// Options of the tool itself, passed on unread; `-- --help` names them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<String>,
}

/// Options of `mutants`.
#[derive(Args)]
pub struct MutantOptions {
    /// Draw only from these crates, of wire, tcp, stack, ring and packetio
    #[arg(long = "crate", value_name = "CRATE", value_delimiter = ',')]
    pub crates: Vec<String>,
    /// Draw only mutants of lines that the last change touched: those not committed, or else those
    /// of the newest commit or merge that has any
    #[arg(long)]
    pub change: bool,
    /// Number of mutants to draw
    #[arg(long, value_name = "NUMBER", default_value_t = MUTANTS_COUNT)]
    pub count: usize,
    /// Seed of the draw
    #[arg(long, value_name = "SEED", default_value_t = MUTANTS_SEED)]
    pub seed: u64,
    /// Minutes after which builds and tests end; mutants that are left are not judged
    #[arg(long, value_name = "MINUTES", default_value_t = MUTANTS_MINUTES)]
    pub minutes: u64,
    /// Judge only drawn mutants whose name contains this: `window.rs:147`
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Leave out mutants that must be built alone
    #[arg(long)]
    pub switched_only: bool,
    /// Number of test programs that run at the same time
    #[arg(long, value_name = "NUMBER", default_value_t = MUTANTS_JOBS)]
    pub jobs: usize,
    /// Percent of the mutants that must be noticed
    #[arg(long, value_name = "PERCENT", default_value_t = MUTANTS_BAR)]
    pub bar: u32,
}

impl Default for MutantOptions {
    fn default() -> Self {
        Self {
            crates: Vec::new(),
            change: false,
            count: MUTANTS_COUNT,
            seed: MUTANTS_SEED,
            minutes: MUTANTS_MINUTES,
            only: None,
            switched_only: false,
            jobs: MUTANTS_JOBS,
            bar: MUTANTS_BAR,
        }
    }
}

/// The part of the project that `stress` loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StressPart {
    /// libmtcp with eight threads
    Libmtcp,
    /// `mill mux` with as many applications as it has virtual ports; needs root
    Mux,
    /// A server under load, with and without all tools that look in; needs root
    Observe,
    /// Millions of short connections through nginx with workers over `mill mux`; needs root
    Programs,
}

/// Options of `stress`.
#[derive(Args)]
pub struct StressOptions {
    /// The part to load
    #[arg(value_enum, default_value = "libmtcp")]
    pub part: StressPart,
    /// Seconds that each of two crowds of clients means to stay; the first one vanishes after a
    /// third of them
    #[arg(long, value_name = "SECONDS", default_value_t = 450)]
    pub seconds: u64,
    /// Number of short connections through nginx
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000_000)]
    pub requests: u64,
    /// Number of connections of each of the eight threads, on either side
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    pub connections: u64,
    /// Run the tools of `observe` one at a time, to see what each takes
    #[arg(long)]
    pub each: bool,
    /// Build the library with the address sanitizer too, which takes a nightly compiler; the short
    /// C programs run first
    #[arg(long)]
    pub sanitize: bool,
}

/// Options of `suites`.
#[derive(Args)]
pub struct SuitesOptions {
    /// Only suites with one of these in their names
    pub names: Vec<String>,
}

/// Options of `packetdrill`.
#[derive(Args)]
pub struct PacketdrillOptions {
    /// Path of packetdrill, built elsewhere
    #[arg(long, value_name = "PATH")]
    pub binary: PathBuf,
    /// Address families: ipv4, ipv4-mapped-ipv6 and ipv6
    #[arg(
        long,
        value_name = "FAMILY",
        value_delimiter = ',',
        default_value = "ipv4"
    )]
    pub families: Vec<String>,
    /// Most seconds for each run
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub seconds: u64,
    /// A flag for packetdrill, such as -DNAME=VALUE; may be repeated
    #[arg(long = "flag", value_name = "FLAG", allow_hyphen_values = true)]
    pub flags: Vec<String>,
    /// The scripts
    #[arg(required = true)]
    pub scripts: Vec<PathBuf>,
}
