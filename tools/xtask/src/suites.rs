//! `cargo xtask suites`: test suites of other projects, run plainly and under `mill run --lo`.
//!
//! Only differences count. A test that passes plainly but not under `mill run` must be named in
//! `docs/differences-preload.md`, with the reason. The suites come from Debian, PyPI and crates.io
//! when the chore runs; none of their code is in this repository. Owns a directory, and a namespace
//! in which only loopback is up.

mod sources;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cleanup;
use crate::cli::SuitesOptions;
use crate::demo;
use crate::run::{self, Watched};
use crate::setup;

use sources::{Sources, Tests};

/// Runs modules of `unittest` and writes each test's outcome, a line for each.
const RUNNER: &str = include_str!("suites/runner.py");
/// Our own tests of calls on localhost, as a module of `unittest`.
const LOCALHOST: &str = include_str!("suites/localhost.py");
/// Our own tests of calls that need C, as a program that gets a test's name.
const LOCALHOST_C: &str = include_str!("suites/localhost.c");
/// The page that names the differences.
const PAGE: &str = "docs/differences-preload.md";

/// Seconds after which a single test is ended.
const TEST_SECONDS_MAX: &str = "60";
/// Seconds after which a suite is ended. Its current test then counts as hanging.
const SECONDS_MAX: &str = "240";

/// A suite: its name, and the way to run it.
struct Suite {
    name: &'static str,
    kind: Kind,
}

enum Kind {
    /// A module of CPython's `test` package, or our own.
    Python,
    /// A module of packages from PyPI, run by `unittest`.
    Packages(&'static str),
    /// A program that is run with each of these arguments. Its exit status counts.
    Program(&'static str, &'static [&'static str]),
    /// Our own program in C, run with each of the names in its table of tests.
    Own,
    /// Sources with their own runner.
    Sources(&'static Sources),
}

const fn python(name: &'static str) -> Suite {
    let kind = Kind::Python;
    Suite { name, kind }
}

const fn tornado(name: &'static str) -> Suite {
    let kind = Kind::Packages("tornado");
    Suite { name, kind }
}

const SUITES: &[Suite] = &[
    python("localhost"),
    Suite {
        name: "localhost in C",
        kind: Kind::Own,
    },
    python("test.test_socket"),
    python("test.test_select"),
    python("test.test_selectors"),
    python("test.test_epoll"),
    python("test.test_poll"),
    python("test.test_socketserver"),
    python("test.test_ssl"),
    python("test.test_ftplib"),
    python("test.test_httplib"),
    python("test.test_urllib2_localnet"),
    python("test.test_asyncio"),
    Suite {
        name: "twisted.internet.test.test_tcp",
        kind: Kind::Packages("twisted[tls] pyhamcrest"),
    },
    Suite {
        name: "twisted.test.test_tcp",
        kind: Kind::Packages("twisted[tls] pyhamcrest"),
    },
    tornado("tornado.test.iostream_test"),
    tornado("tornado.test.httpserver_test"),
    tornado("tornado.test.simple_httpclient_test"),
    tornado("tornado.test.websocket_test"),
    tornado("tornado.test.tcpserver_test"),
    tornado("tornado.test.tcpclient_test"),
    tornado("tornado.test.ioloop_test"),
    tornado("tornado.test.netutil_test"),
    Suite {
        name: "stress-ng",
        kind: Kind::Program(
            "stress-ng --timeout 3 --temp-path . --oomable",
            &[
                "--sock 2",
                "--sockmany 1",
                "--epoll 1",
                "--poll 2",
                "--dup 2",
                "--fork 2",
                "--sendfile 1",
                "--sockpair 2",
                "--sockabuse 2",
                "--sockfd 1",
                "--close 1",
                "--sigio 1",
                "--sigpipe 1",
                "--splice 1",
                "--fcntl 1",
            ],
        ),
    },
];

type Outcomes = BTreeMap<String, String>;

/// Runs the suites. False: there is a difference that the page does not name.
pub fn suites(root: &Path, options: &SuitesOptions) -> Result<bool, String> {
    demo::must_be_root("suites")?;
    let need = setup::Need {
        suites: true,
        // Some suites lack the program that they test.
        programs: true,
        ..setup::Need::default()
    };
    setup::setup(root, &need)?;
    run::run(run::cargo().args(["build", "--release", "-p", "preload", "-p", "mill"]))?;
    let place = Place::new(root)?;
    let page = fs::read_to_string(root.join(PAGE)).map_err(|error| format!("{PAGE}: {error}"))?;
    let mut is_good = true;
    let wanted = |suite: &&Suite| {
        options.names.is_empty() || options.names.iter().any(|name| suite.name.contains(name))
    };
    let more = sources::SUITES.iter().map(|(name, sources)| Suite {
        name,
        kind: Kind::Sources(sources),
    });
    let more: Vec<Suite> = more.collect();
    for suite in SUITES.iter().chain(&more).filter(wanted) {
        let plain = place.outcomes(suite, false)?;
        let under = place.outcomes(suite, true)?;
        is_good &= compare(suite.name, &plain, &under, &page);
    }
    Ok(is_good)
}

/// Prints the differences. False: the page does not name all of them.
fn compare(name: &str, plain: &Outcomes, under: &Outcomes, page: &str) -> bool {
    let passed = |outcomes: &Outcomes| outcomes.values().filter(|one| *one == "ok").count();
    println!(
        "{name}: {} tests, {} pass plainly, {} under mill run",
        plain.len(),
        passed(plain),
        passed(under)
    );
    let mut is_good = !plain.is_empty();
    for (test, outcome) in plain.iter().filter(|(_, outcome)| *outcome == "ok") {
        let said = under.get(test).map_or("did not run", String::as_str);
        if said == "ok" {
            continue;
        }
        let short = test.rsplit('.').take(2).collect::<Vec<_>>();
        let short = short.into_iter().rev().collect::<Vec<_>>().join(".");
        let is_known = [&short, test]
            .iter()
            .any(|name| page.contains(&format!("`{name}`")));
        let note = if is_known { "known" } else { "NEW" };
        println!("  {note}: {test}: {outcome}, under mill run {said}");
        is_good &= is_known;
    }
    is_good
}

/// The namespace and the directory of the suites.
struct Place {
    namespace: String,
    directory: PathBuf,
    mill: PathBuf,
}

impl Drop for Place {
    fn drop(&mut self) {
        // A namespace that cannot be removed now is swept when the run ends.
        let _ = run::output(run::command("ip").args(["netns", "delete", &self.namespace]));
    }
}

impl Place {
    fn new(root: &Path) -> Result<Self, String> {
        let place = Self {
            namespace: format!("mst-{}-suite", std::process::id()),
            directory: cleanup::temporary_directory()?.join("suites"),
            mill: run::target(root).join("release/mill"),
        };
        let name = &place.namespace;
        run::output(run::command("ip").args(["netns", "add", name]))?;
        run::output(run::command("ip").args(["-n", name, "link", "set", "lo", "up"]))?;
        fs::create_dir_all(&place.directory).map_err(|error| error.to_string())?;
        let files = [
            ("runner.py", RUNNER),
            ("localhost.py", LOCALHOST),
            ("localhost.c", LOCALHOST_C),
        ];
        for (name, text) in files {
            let path = place.directory.join(name);
            fs::write(path, text).map_err(|error| error.to_string())?;
        }
        let mut compiler = run::command("cc");
        compiler.args(["-O2", "-pthread", "-o", "localhost", "localhost.c"]);
        run::output(compiler.current_dir(&place.directory))?;
        Ok(place)
    }

    fn outcomes(&self, suite: &Suite, is_under: bool) -> Result<Outcomes, String> {
        match &suite.kind {
            Kind::Python => self.unittest(suite.name, None, is_under),
            Kind::Packages(names) => {
                let packages = self.packages(names)?;
                self.unittest(suite.name, Some(packages), is_under)
            }
            Kind::Program(line, all) => self.by_status(line, all, is_under),
            Kind::Own => {
                let program = self.directory.join("localhost").display().to_string();
                self.by_status(&program, &tests_of(LOCALHOST_C), is_under)
            }
            Kind::Sources(sources) => self.by_lines(sources, is_under),
        }
    }

    /// Outcomes of a program that is run with each of these arguments.
    fn by_status(&self, line: &str, all: &[&str], is_under: bool) -> Result<Outcomes, String> {
        let one = |arguments: &&str| {
            let line = format!("{line} {arguments}");
            let words: Vec<&str> = line.split(' ').collect();
            let good = self.ends_well(&words, is_under)?;
            let outcome = if good { "ok" } else { "failed" };
            Ok(((*arguments).to_owned(), outcome.to_owned()))
        };
        all.iter().map(one).collect()
    }

    /// Outcomes of the tests in sources, which run one by one or all at once.
    fn by_lines(&self, sources: &Sources, is_under: bool) -> Result<Outcomes, String> {
        let directory = sources.ready(&self.directory)?;
        let (list, run) = match sources.tests {
            Tests::Each(list, run) => (list, run),
            Tests::AtOnce(line) => {
                let mut command = self.command(&["sh", "-c", line], is_under, SECONDS_MAX);
                command.current_dir(&directory).stdout(Stdio::piped());
                let said = run::outcome(&mut command)?;
                return Ok(read(&String::from_utf8_lossy(&said.stdout)));
            }
        };
        let names = run::output(
            run::command("sh")
                .args(["-c", list])
                .current_dir(&directory),
        )?;
        let one = |name: &str| {
            let words = ["sh", "-c", run, "sh", name];
            let mut command = self.command(&words, is_under, TEST_SECONDS_MAX);
            let good = Watched::start(command.current_dir(&directory))?.wait()?;
            Ok((
                name.to_owned(),
                if good { "ok" } else { "failed" }.to_owned(),
            ))
        };
        names.split_whitespace().map(one).collect()
    }

    /// A directory with packages from PyPI and their dependencies.
    fn packages(&self, names: &str) -> Result<PathBuf, String> {
        let directory = self.directory.join("pypi").join(names.replace(' ', "-"));
        if !directory.exists() {
            let target = directory.display().to_string();
            let mut pip = run::command("/usr/bin/python3");
            pip.args(["-m", "pip", "install", "-q", "--target", &target]);
            run::output(pip.args(names.split(' ')))?;
        }
        Ok(directory)
    }

    fn unittest(
        &self,
        module: &str,
        packages: Option<PathBuf>,
        is_under: bool,
    ) -> Result<Outcomes, String> {
        let runner = self.directory.join("runner.py").display().to_string();
        let log = self.directory.join("outcomes");
        let written = log.display().to_string();
        let words = ["/usr/bin/python3", "-u", &runner, &written, module];
        // Remove the outcomes of an earlier suite, which would prove nothing.
        let _ = fs::remove_file(&log);
        let mut command = self.command(&words, is_under, SECONDS_MAX);
        if let Some(packages) = packages {
            command.env("PYTHONPATH", packages);
        }
        // The status does not matter, as the outcomes are in the file.
        let _ = Watched::start(&mut command)?.wait()?;
        let text = fs::read_to_string(&log).unwrap_or_default();
        Ok(read(&text))
    }

    fn ends_well(&self, words: &[&str], is_under: bool) -> Result<bool, String> {
        Watched::start(&mut self.command(words, is_under, SECONDS_MAX))?.wait()
    }

    fn command(&self, words: &[&str], is_under: bool, seconds: &str) -> Command {
        let mill = self.mill.display().to_string();
        let under: &[&str] = match is_under {
            true => &[&mill, "run", "--lo", "--"],
            false => &[],
        };
        let mut command = run::command("ip");
        command.args(["netns", "exec", &self.namespace]);
        command.args(["timeout", "-k", "5", seconds]);
        command.args(under).args(words);
        command.current_dir(&self.directory).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// The names in the table of tests of our program in C.
fn tests_of(program: &str) -> Vec<&str> {
    let rows = program
        .lines()
        .filter_map(|line| line.strip_prefix("    {\""));
    rows.filter_map(|row| Some(row.split_once('"')?.0))
        .collect()
}

/// Outcomes by test. A test that began and did not end hangs.
fn read(text: &str) -> Outcomes {
    let mut outcomes = Outcomes::new();
    for line in text.lines() {
        if let Some((outcome, test)) = line.split_once(' ') {
            let outcome = if outcome == "begins" {
                "hangs"
            } else {
                outcome
            };
            outcomes.insert(test.to_owned(), outcome.to_owned());
        }
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_that_began_and_did_not_end_hangs() {
        let outcomes = read("begins a.B.c\nok a.B.c\nbegins a.B.d\n");
        assert_eq!(outcomes["a.B.c"], "ok");
        assert_eq!(outcomes["a.B.d"], "hangs");
    }

    #[test]
    fn tests_in_c_are_found_in_their_table() {
        let table = "    {\"one\", one},\n    {\"two-three\", two_three},\n};\n";
        assert_eq!(tests_of(table), ["one", "two-three"]);
        assert!(tests_of(LOCALHOST_C).len() > 10);
    }

    #[test]
    fn difference_is_good_only_if_the_page_names_it() {
        let plain = read("ok m.A.one\nok m.A.two\nfailed m.A.three\n");
        let under = read("ok m.A.one\nfailed m.A.two\nfailed m.A.three\n");
        assert!(compare("m", &plain, &plain, ""));
        assert!(!compare("m", &plain, &under, "nothing"));
        assert!(compare("m", &plain, &under, "| `A.two` | reason |"));
        assert!(!compare("m", &Outcomes::new(), &under, ""), "nothing ran");
    }
}
