//! Huge pages and CPUs of contexts: what each setting does, and what it says when it cannot.
//!
//! The tests of reserved huge pages set `vm.nr_hugepages`, one at a time, and put it back. Where
//! they may not, they say so and do nothing. A test of a control group runs itself again as a
//! process within the group: a page that is missing at the touch ends a process.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millstream::{
    Config, Context, Crank, Error, HugePages, Limits, PagesHeld, Runtime, TcpListener, TcpStream,
};
use ring::huge_pages::Reserved;
use rustix::thread::{CpuSet, sched_getaffinity};

/// Time limit of what a thread does at its start.
const PATIENCE: Duration = Duration::from_secs(30);
const SETTING: &str = "/proc/sys/vm/nr_hugepages";
const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// `vm.nr_hugepages`: changed by one test at a time, restored on drop.
struct ReservedPages {
    before: u64,
    _alone: MutexGuard<'static, ()>,
}

impl ReservedPages {
    /// Waits for the other tests. `None`, with the reason on stderr, if this machine does not
    /// permit the test.
    fn alone() -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let Reserved { total, free, .. } = Reserved::read();
        let is_writable = fs::OpenOptions::new().write(true).open(SETTING).is_ok();
        if !is_writable || free > 0 {
            eprintln!(
                "skipped: {SETTING} is not to be changed: writable {is_writable}, {free} free"
            );
            return None;
        }
        Some(Self {
            before: total,
            _alone: alone,
        })
    }

    /// Reserves `pages` in all. False, with the reason, if the kernel does not have as many.
    fn set(&self, pages: u64) -> bool {
        fs::write(SETTING, pages.to_string()).unwrap();
        let has_them = Reserved::read().total >= pages;
        if !has_them {
            eprintln!("skipped: the kernel found no {pages} free huge pages");
        }
        has_them
    }
}

impl Drop for ReservedPages {
    fn drop(&mut self) {
        fs::write(SETTING, self.before.to_string()).unwrap();
    }
}

/// A configuration large enough for some tables of more than 2 MiB.
fn config(hugetlb: HugePages) -> Config {
    let mut config = Config::new("loopback:".parse().unwrap());
    config.addresses.push("10.0.0.1/24".parse().unwrap());
    config.limits = Limits::for_connections(8_192);
    config.limits.large_chunks = 1_024;
    config.hugetlb = hugetlb;
    config
}

/// Sends bytes over a connection of the context to itself.
fn expect_traffic(context: &Context) {
    let place = "10.0.0.1:80".parse().unwrap();
    let listener = TcpListener::bind(context, place).unwrap();
    let mut client = TcpStream::connect(context, place).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let sent = [7; 20_000];
    client.write_all(&sent[..10_000]).unwrap();
    let mut bytes = vec![0; 10_000];
    server.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, sent[..10_000]);
}

/// A runtime's first context, which was tested, and its pages.
fn working(runtime: &Runtime) -> (Context, PagesHeld) {
    let context = runtime.context(0).unwrap();
    expect_traffic(&context);
    let pages = context.report().unwrap().pages;
    (context, pages)
}

/// Number of this process's mappings on reserved huge pages, from `smaps`.
fn hugetlb_mappings() -> usize {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let flags = smaps.lines().filter(|line| line.starts_with("VmFlags:"));
    flags.filter(|line| line.contains(" ht")).count()
}

/// Whether the kernel grants transparent huge pages.
fn grants_thp() -> bool {
    let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    setting.is_ok_and(|setting| !setting.contains("[never]"))
}

/// The number of reserved pages that the error of `require` asks for.
fn pages_asked_for(error: &str) -> u64 {
    let (_, command) = error.split_once(": `sysctl vm.nr_hugepages=").unwrap();
    command.trim_end_matches('`').parse().unwrap()
}

#[test]
fn require_without_pages_says_how_many_and_with_them_takes_them() {
    let Some(reserved) = ReservedPages::alone() else {
        return;
    };
    let mut wanted = config(HugePages::Require);
    wanted.contexts = 2;
    let error = Runtime::new(wanted.clone()).err().expect("no pages");
    let said = error.to_string();
    let number = pages_asked_for(&said);
    let (counts, _) = said.split_once(": `sysctl").unwrap();
    let missing = number - reserved.before;
    let expected = format!(
        "hugetlb: require: {missing} huge pages of 2 MiB are needed and 0 are free, {missing} are missing"
    );
    assert_eq!(counts, expected);
    assert!(missing > 8, "{said}");

    // One page fewer than the message says is too few.
    if !reserved.set(number - 1) {
        return;
    }
    let error = Runtime::new(wanted.clone()).err().expect("a page less");
    assert!(error.to_string().contains(" 1 are missing"), "{error}");
    assert!(reserved.set(number));
    let runtime = Runtime::new(wanted).unwrap();
    let (_context, pages) = working(&runtime);
    assert_eq!(pages.hugetlb_bytes, missing / 2 * HUGE_PAGE_BYTES);
    assert_eq!(pages.thp_bytes, 0);
    assert!(hugetlb_mappings() >= 2 * 2, "memory files and tables");
    assert_eq!(Reserved::read().free, 0, "promised to the last page");
}

#[test]
fn auto_takes_reserved_pages_while_there_are_any_and_transparent_ones_then() {
    let Some(reserved) = ReservedPages::alone() else {
        return;
    };
    let runtime = Runtime::new(config(HugePages::Auto)).unwrap();
    let (_, without) = working(&runtime);
    assert_eq!(without.hugetlb_bytes, 0);
    assert_eq!(without.thp_bytes > 0, grants_thp());
    // Enough for the memory file, which is made first, but not for all tables.
    let few = 8;
    if !reserved.set(reserved.before + few) {
        return;
    }
    let runtime = Runtime::new(config(HugePages::Auto)).unwrap();
    let (_context, some) = working(&runtime);
    assert!((1..=few * HUGE_PAGE_BYTES).contains(&some.hugetlb_bytes));
    assert_eq!(some.thp_bytes > 0, grants_thp());
    assert!(hugetlb_mappings() > 0);
}

#[test]
fn off_leaves_reserved_pages_to_others_and_advises_none() {
    let Some(reserved) = ReservedPages::alone() else {
        return;
    };
    if !reserved.set(reserved.before + 8) {
        return;
    }
    let runtime = Runtime::new(config(HugePages::Off)).unwrap();
    let (_context, pages) = working(&runtime);
    assert_eq!((pages.hugetlb_bytes, pages.thp_bytes), (0, 0));
    assert!(pages.ordinary_bytes > 8 * HUGE_PAGE_BYTES);
    assert_eq!((Reserved::read().free, hugetlb_mappings()), (8, 0));
}

#[test]
fn transparent_leaves_reserved_pages_to_others_and_advises_its_own() {
    let Some(reserved) = ReservedPages::alone() else {
        return;
    };
    if !reserved.set(reserved.before + 8) {
        return;
    }
    let runtime = Runtime::new(config(HugePages::Transparent)).unwrap();
    let (_context, pages) = working(&runtime);
    assert_eq!(pages.hugetlb_bytes, 0);
    assert_eq!(pages.thp_bytes > 0, grants_thp());
    assert_eq!((Reserved::read().free, hugetlb_mappings()), (8, 0));
}

/// A control group that has a limit of huge pages of 2 MiB.
struct PageLimit {
    directory: PathBuf,
    /// The hierarchy, if its groups had no limits of huge pages before.
    opened: Option<PathBuf>,
}

impl PageLimit {
    const FILE: &str = "hugetlb.2MB.max";

    /// `None`, with the reason on stderr: this machine makes no such group.
    fn new() -> Option<Self> {
        let group = Self::made();
        if group.is_none() {
            eprintln!("skipped: no control group (v2) with a limit of huge pages can be made");
        }
        group
    }

    fn made() -> Option<Self> {
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let has = |root: &Path, file: &str| {
            let names = fs::read_to_string(root.join(file)).unwrap_or_default();
            names.split_whitespace().any(|name| name == "hugetlb")
        };
        let root = roots
            .into_iter()
            .find(|root| has(root, "cgroup.controllers"))?;
        let was_open = has(root, "cgroup.subtree_control");
        fs::write(root.join("cgroup.subtree_control"), "+hugetlb").ok()?;
        let directory = root.join(format!("millstream-pages-{}", std::process::id()));
        let made = fs::create_dir(&directory);
        let group = Self {
            directory,
            opened: (!was_open).then(|| root.to_owned()),
        };
        made.is_ok().then_some(group)
    }

    fn set(&self, pages: u64) {
        let bytes = (pages * HUGE_PAGE_BYTES).to_string();
        fs::write(self.directory.join(Self::FILE), bytes).unwrap();
    }

    /// The test `name` in a process of the group.
    fn run(&self, name: &str) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture"]);
        command.env(GROUP, &self.directory);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", output.status);
    }
}

impl Drop for PageLimit {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.directory);
        if let Some(root) = &self.opened {
            let _ = fs::write(root.join("cgroup.subtree_control"), "-hugetlb");
        }
    }
}

/// The variable that names the group to a test's process within it.
const GROUP: &str = "MILLSTREAM_TEST_GROUP";

/// Whether this process is a test's own. It is in the group now.
fn enters_group() -> bool {
    let Some(group) = std::env::var_os(GROUP) else {
        return false;
    };
    let own = std::process::id().to_string();
    fs::write(Path::new(&group).join("cgroup.procs"), own).unwrap();
    true
}

#[test]
fn pages_that_a_control_group_withholds_are_found_when_the_stack_is_made() {
    let name = "pages_that_a_control_group_withholds_are_found_when_the_stack_is_made";
    if enters_group() {
        return within_the_limit();
    }
    let Some(reserved) = ReservedPages::alone() else {
        return;
    };
    let Some(group) = PageLimit::new() else {
        return;
    };
    let error = Runtime::new(config(HugePages::Require)).err();
    let number = pages_asked_for(&error.expect("no pages").to_string());
    // The kernel promises all pages, and the group is to have some of them or none.
    if !reserved.set(number) {
        return;
    }
    for limit in [0, 4] {
        group.set(limit);
        group.run(name);
        let left = Reserved::read().free;
        assert_eq!(left, number - reserved.before, "all have come back");
    }
}

fn within_the_limit() {
    let group = PathBuf::from(std::env::var_os(GROUP).unwrap());
    let limit = fs::read_to_string(group.join(PageLimit::FILE)).unwrap();
    let limit: u64 = limit.trim().parse().unwrap();
    let runtime = Runtime::new(config(HugePages::Auto)).unwrap();
    let (context, pages) = working(&runtime);
    assert!(pages.hugetlb_bytes <= limit, "{pages:?}");
    assert_eq!(pages.thp_bytes > 0, grants_thp());
    drop((context, runtime));
    let error = Runtime::new(config(HugePages::Require)).err();
    let said = error.expect("too few pages").to_string();
    assert!(said.contains(PageLimit::FILE), "{said}");
}

fn only(cpu: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu);
    set
}

/// Two CPUs of this machine, or the only one twice.
fn two_cpus() -> [usize; 2] {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let online = millstream::cpu_list(&online).unwrap();
    [online[online.len() - 1], online[0]]
}

/// `Cpus_allowed_list` of each thread of this process whose name begins with `name`.
fn allowed_of(name: &str) -> BTreeMap<String, String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let of = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let value = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.map(|value| value.trim().to_owned())
        };
        let (name_of, allowed) = (value("Name:")?, value("Cpus_allowed_list:")?);
        name_of.starts_with(name).then_some((name_of, allowed))
    };
    tasks.filter_map(of).collect()
}

#[test]
fn threads_of_a_context_run_on_its_core_and_others_where_they_did() {
    let cpus = two_cpus();
    let mut config = config(HugePages::Off);
    (config.contexts, config.cores) = (2, cpus.to_vec());
    config.crank = Crank::Dedicated;
    let before = sched_getaffinity(None).unwrap();
    let runtime = Runtime::new(config).unwrap();
    assert_eq!(sched_getaffinity(None).unwrap(), before, "the maker's");
    std::thread::scope(|scope| {
        for (index, cpu) in cpus.into_iter().enumerate() {
            let runtime = &runtime;
            scope.spawn(move || {
                let context = runtime.context(index).unwrap();
                assert_eq!(sched_getaffinity(None).unwrap(), only(cpu));
                let name = format!("millstream-{index}");
                // A thread sets its name after it has started, and then its core.
                let end = Instant::now() + PATIENCE;
                let is_placed = || allowed_of(&name).into_values().eq([cpu.to_string()]);
                while !is_placed() {
                    assert!(Instant::now() < end, "{:?}", allowed_of(&name));
                    std::thread::yield_now();
                }
                context.report().unwrap();
            });
        }
    });
    // The thread of the switch between the contexts is not bound.
    let (_, switch) = allowed_of("millstream-swit").pop_first().unwrap();
    assert_eq!(
        millstream::cpu_list(&switch).unwrap().len(),
        before.count() as usize
    );
}

#[test]
fn cores_that_cannot_be_had_are_named() {
    let refused = |cores: &[usize]| {
        let mut config = config(HugePages::Off);
        config.cores = cores.to_vec();
        Runtime::new(config).err().expect("refused").to_string()
    };
    let said = refused(&[0, 0]);
    assert_eq!(said, "cores: 2 CPUs for 1 contexts: each context has one");
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let said = refused(&[1_000]);
    let online = online.trim();
    assert_eq!(
        said,
        format!("cores: CPU 1000: there is no such CPU: {online} are online")
    );
}

#[test]
fn core_outside_the_cpuset_is_named() {
    let [cpu, other] = two_cpus();
    let group = Cpuset::enter(other).filter(|_| cpu != other);
    let Some(_group) = group else {
        eprintln!("skipped: no cpuset of cgroup v1 can be made, or there is one CPU");
        return;
    };
    let mut config = config(HugePages::Off);
    config.cores = vec![cpu];
    let error = Runtime::new(config).err().expect("refused");
    assert!(matches!(error, Error::Cpu { .. }));
    let expected = format!("cores: CPU {cpu}: its cpuset keeps this process from it");
    assert_eq!(error.to_string(), expected);
}

/// A control group with one CPU that contains this thread.
struct Cpuset(String);

impl Cpuset {
    const ROOT: &str = "/sys/fs/cgroup/cpuset";

    fn enter(cpu: usize) -> Option<Self> {
        let path = format!("{}/millstream-place-{}", Self::ROOT, std::process::id());
        fs::create_dir(&path).ok()?;
        let group = Self(path);
        let write = |name: &str, value: String| fs::write(format!("{}/{name}", group.0), value);
        let mems = fs::read_to_string(format!("{}/cpuset.mems", Self::ROOT)).ok()?;
        write("cpuset.mems", mems).ok()?;
        write("cpuset.cpus", cpu.to_string()).ok()?;
        // 0 means the writing thread.
        write("tasks", "0".to_owned()).ok()?;
        Some(group)
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        let _ = fs::write(format!("{}/tasks", Self::ROOT), "0");
        let _ = fs::remove_dir(&self.0);
    }
}
