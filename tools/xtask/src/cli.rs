//! The command line of `cargo xtask`. Owned by `main`, read by the chores.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Seconds that each fuzz target runs as a part of `cargo xtask test`.
const FUZZ_SMOKE_SECONDS: u64 = 20;
/// Seconds that each fuzz target runs in `cargo xtask fuzz`: what a release asks for.
const FUZZ_SECONDS: u64 = 3600;
/// Mutants that `cargo xtask mutants` draws.
const MUTANTS_COUNT: usize = 100;
const MUTANTS_SEED: u64 = 1;
const MUTANTS_MINUTES: u64 = 60;
const MUTANTS_JOBS: usize = 2;
/// Percent of the mutants that tests have to notice.
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

/// One chore.
#[derive(Subcommand)]
pub enum Chore {
    /// Install what is missing, build, and run the demo
    Demo(DemoOptions),
    /// Install what is missing, then run every check and test
    Test(TestOptions),
    /// All that CI runs: `test` with nothing left out
    Ci,
    /// The executed part of STYLE.md
    Tidy,
    /// Write the tables of docs/operating.md from the lists of counters, values and log lines
    Docs(DocsOptions),
    /// docs/conformance.md names places and tests that exist
    Conformance,
    /// Licences, sources and versions of the crates that we take from others (deny.toml)
    Deny,
    /// The tests of `ring` under loom: every interleaving of the tiny sizes
    Loom,
    /// The tests of `ring` under Miri
    Miri,
    /// Run the fuzz targets
    Fuzz(FuzzOptions),
    /// Run a benchmark, release build
    Bench(BenchOptions),
    /// The functions and files that a received and a written segment pass
    Path,
    /// Random worlds from seeds: stacks, networks, faults and applications in virtual time
    Sim(PassedOn),
    /// Play packet scripts, in packetdrill's language, on the stack in virtual time or on the
    /// kernel
    Script(PassedOn),
    /// Small changes to the product that some test should notice, drawn by a seed
    Mutants(MutantOptions),
    /// Run scripts with packetdrill itself, our plug-in loaded into it
    Packetdrill(PacketdrillOptions),
    /// libmtcp with eight threads and thousands of connections, and clients that vanish, for
    /// minutes; or `mux`: 254 applications behind one `mill mux`; or `observe`: a load beside all
    /// tools that look in
    Stress(StressOptions),
    /// Test suites of other projects, plainly and under `mill run --lo`; only differences count
    Suites(SuitesOptions),
    /// Lay out libmtcp as a distribution would: library, headers, pkg-config file, manual pages
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
    /// Write nothing, and fail if a table is not as it should be
    #[arg(long)]
    pub check: bool,
}

/// A path that is meant from where the command was given: chores run at the root.
fn absolute(path: &str) -> std::io::Result<PathBuf> {
    std::path::absolute(path)
}

/// Options of `install`.
#[derive(Args)]
pub struct InstallOptions {
    /// Where programs will find it
    #[arg(long, value_name = "DIR", default_value = "/usr/local", value_parser = absolute)]
    pub prefix: PathBuf,
    /// Put everything below this directory, for a package
    #[arg(long, value_name = "DIR", value_parser = absolute)]
    pub destdir: Option<PathBuf>,
    /// Build nothing: install what the last release build made
    #[arg(long, conflicts_with = "profile_guided")]
    pub no_build: bool,
    /// Where the libraries were built, in place of the last release build
    #[arg(long, value_name = "DIR", requires = "no_build", value_parser = absolute)]
    pub from: Option<PathBuf>,
    /// Without the shared library, so that `-lmtcp` takes the archive: for a tree as mTCP's, with
    /// --prefix TREE/mtcp
    #[arg(long = "static")]
    pub is_static: bool,
    /// Build with a profile of what runs, which takes two builds and a minute, and spares a fifth
    /// of the CPU time
    #[arg(long)]
    pub profile_guided: bool,
}

/// Options of `demo`; all of them go on to `mill demo`.
#[derive(Args, Default)]
pub struct DemoOptions {
    /// Under a minute after the build
    #[arg(long)]
    pub quick: bool,
    /// Write what the demo saw to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Build nothing and install nothing: run the binary that is there
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
    /// Seconds for each fuzz target
    #[arg(long, value_name = "SECONDS", default_value_t = FUZZ_SMOKE_SECONDS)]
    pub fuzz_seconds: u64,
    /// Write the steps, their times and outcomes to this file
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
            json: None,
        }
    }
}

/// Options of `fuzz`.
#[derive(Args)]
pub struct FuzzOptions {
    /// Fuzz targets; none named means all
    pub targets: Vec<String>,
    /// Seconds for each target
    #[arg(long, value_name = "SECONDS", default_value_t = FUZZ_SECONDS)]
    pub seconds: u64,
}

/// Options of `bench`.
#[derive(Args)]
pub struct BenchOptions {
    /// Build as `cargo build --release` does, without a profile of what runs
    #[arg(long)]
    pub plain: bool,
    /// Which benchmark, and its options: they go to the benchmarks' program as they are
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<String>,
}

/// Options of `sim` and of `script`.
#[derive(Args)]
pub struct PassedOn {
    /// The options of the tool itself, passed on unread; `-- --help` names them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<String>,
}

/// Options of `mutants`.
#[derive(Args)]
pub struct MutantOptions {
    /// Only these crates: of wire, tcp, stack, ring and packetio
    #[arg(long = "crate", value_name = "CRATE", value_delimiter = ',')]
    pub crates: Vec<String>,
    /// Only mutants of lines that the last change touched: what is not committed, or else the
    /// newest commit or merge that has any
    #[arg(long)]
    pub change: bool,
    /// How many mutants are drawn
    #[arg(long, value_name = "NUMBER", default_value_t = MUTANTS_COUNT)]
    pub count: usize,
    /// Seed of the draw
    #[arg(long, value_name = "SEED", default_value_t = MUTANTS_SEED)]
    pub seed: u64,
    /// Builds and tests end after so many minutes, and the mutants that are left are not judged
    #[arg(long, value_name = "MINUTES", default_value_t = MUTANTS_MINUTES)]
    pub minutes: u64,
    /// Judge only drawn mutants whose name contains this: `window.rs:147`
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Leave out mutants that have to be built alone
    #[arg(long)]
    pub switched_only: bool,
    /// Test programs that run at the same time
    #[arg(long, value_name = "NUMBER", default_value_t = MUTANTS_JOBS)]
    pub jobs: usize,
    /// Percent of the mutants that have to be noticed
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
    /// libmtcp under eight threads
    Libmtcp,
    /// `mill mux` with as many applications as it has virtual ports; as root
    Mux,
    /// A server under load with and without all tools that look in; as root
    Observe,
    /// Short connections by the million through nginx with workers over `mill mux`; as root
    Programs,
}

/// Options of `stress`.
#[derive(Args)]
pub struct StressOptions {
    /// The part under stress
    #[arg(value_enum, default_value = "libmtcp")]
    pub part: StressPart,
    /// Seconds that each of the two crowds means to stay; the first one vanishes after a third of
    /// it
    #[arg(long, value_name = "SECONDS", default_value_t = 450)]
    pub seconds: u64,
    /// Short connections through nginx
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000_000)]
    pub requests: u64,
    /// Connections of each of the eight threads on either side
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    pub connections: u64,
    /// With the address sanitizer within the library too, which takes a nightly compiler; the short
    /// programs in C first
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
    /// packetdrill, built elsewhere
    #[arg(long, value_name = "PATH")]
    pub binary: PathBuf,
    /// Which of ipv4, ipv4-mapped-ipv6 and ipv6
    #[arg(
        long,
        value_name = "FAMILY",
        value_delimiter = ',',
        default_value = "ipv4"
    )]
    pub families: Vec<String>,
    /// Seconds for each run
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub seconds: u64,
    /// A flag for packetdrill, such as -DNAME=VALUE; may be given again and again
    #[arg(long = "flag", value_name = "FLAG", allow_hyphen_values = true)]
    pub flags: Vec<String>,
    /// The scripts
    #[arg(required = true)]
    pub scripts: Vec<PathBuf>,
}
