//! Suites from Debian's source packages, PyPI or crates.io, described by lines of shell.
//!
//! Owns nothing: sources and builds lie in the chore's directory and are removed with it. Called by
//! [`super`].

use std::fs;
use std::path::{Path, PathBuf};

use crate::run;

/// The origin of a suite, and how its tests are built, named and run.
pub struct Sources {
    /// A source package of Debian, or packages of PyPI after `pypi:`, or a crate after `crate:`.
    pub from: &'static str,
    /// Shell line that builds the runner, in the directory of the sources.
    pub build: &'static str,
    /// The way in which the tests run there.
    pub tests: Tests,
}

/// The way to run a suite's tests.
pub enum Tests {
    /// A shell line that prints the names, and one that runs the test `$1`. Its exit status counts.
    Each(&'static str, &'static str),
    /// A shell line that runs all tests and prints `ok NAME` or `failed NAME` for each.
    AtOnce(&'static str),
}

/// The suites, by name.
pub const SUITES: &[(&str, Sources)] = &[
    (
        "libuv",
        Sources {
            from: "libuv1",
            build: "cmake -S . -B b -DLIBUV_BUILD_TESTS=ON >b.log && make -C b uv_run_tests_a >b.log",
            tests: Tests::Each(
                "UV_RUN_AS_ROOT=1 b/uv_run_tests_a --list | grep -E \
                 'tcp|connect|shutdown|listen|poll|ipc|close|accept|emfile|fork|signal|spawn|write'",
                "cd b && UV_RUN_AS_ROOT=1 ./uv_run_tests_a \"$1\"",
            ),
        },
    ),
    (
        "libevent",
        Sources {
            from: "libevent",
            build: "cmake -S . -B b -DEVENT__DISABLE_BENCHMARK=ON -DEVENT__DISABLE_SAMPLES=ON \
                    -DEVENT__DISABLE_OPENSSL=ON >b.log && make -C b regress >b.log",
            tests: Tests::AtOnce(
                "cd b && ./bin/regress | sed -nE \
                 's,^([^ ]+): (\\[forking\\] )?OK$,ok \\1,p;s,^  \\[([^ ]+) FAILED\\]$,failed \\1,p'",
            ),
        },
    ),
    (
        "node",
        Sources {
            from: "nodejs",
            build: "true",
            tests: Tests::Each(
                "cd test && ls */test-net-*.js",
                "cd test && export NODE_TEST_DIR=. && /usr/bin/node \
                 $(sed -n 's,^// Flags: ,,p' \"$1\" | head -1) \"$1\"",
            ),
        },
    ),
    (
        "perl",
        Sources {
            from: "perl",
            build: "true",
            tests: Tests::Each(
                "ls cpan/IO-Socket-IP/t/*.t dist/IO/t/*.t cpan/Socket/t/*.t cpan/libnet/t/*.t",
                "cd \"${1%/t/*}\" && prove -I lib -I . \"t/${1##*/}\"",
            ),
        },
    ),
    (
        "ruby",
        Sources {
            from: "ruby3.1",
            build: "true",
            tests: Tests::Each(
                "for file in test/socket/test_*.rb test/net/http/test_http*.rb \
                 test/open-uri/test_open-uri.rb test/drb/test_drb.rb test/fiber/test_io.rb; \
                 do grep -oE 'def test_[a-zA-Z0-9_]+' $file | sed \"s,def ,$file#,\"; done | sort -u",
                "ruby -Itool/lib -Itest/lib -e 'require \"test/unit\"; require \"core_assertions\"; \
                 require \"envutil\"; load ARGV.shift' \"./${1%#*}\" -n \"${1#*#}\"",
            ),
        },
    ),
    (
        "trio",
        Sources {
            from: "pypi:trio pytest trustme pyOpenSSL",
            build: "true",
            tests: Tests::AtOnce(
                "export PYTHONPATH=$PWD; cd trio && /usr/bin/python3 -P -m pytest -q -rA \
                 -p no:cacheprovider -p trio._tests.pytest_plugin _core/_tests/test_io.py \
                 _tests/test_socket.py _tests/test_highlevel_*.py _tests/test_ssl.py | sed -nE \
                 's, at 0x[0-9a-f]+,,g;s,^PASSED ([^ ]+).*,ok \\1,p;s,^(FAILED|ERROR) ([^ ]+).*,failed \\2,p'",
            ),
        },
    ),
    (
        "tokio",
        Sources {
            from: "crate:tokio",
            build: "export CARGO_TARGET_DIR=$PWD/b CARGO_PROFILE_TEST_DEBUG=0; \
                    cargo test -q --no-run --features full $(ls tests | sed -nE \
                    's,^((tcp|udp|uds|net_[bq]|io_driver|io_async|rt_common|rt_threaded).*)[.]rs$,--test \\1,p') \
                    >b.log 2>&1",
            tests: Tests::AtOnce(
                "cd b/debug/deps && for file in $(ls | grep -E '^(tcp|udp|uds|net|io|rt)_[a-z_]*-[0-9a-f]+$'); \
                 do ./$file --test-threads 2 | sed -nE \
                 \"s,^test ([^ ]+).* ok$,ok ${file%-*}::\\1,p;s,^test ([^ ]+).* FAILED$,failed ${file%-*}::\\1,p\"; done",
            ),
        },
    ),
    ("perl-http-daemon", perl("libhttp-daemon-perl")),
    ("perl-lwp", perl("libwww-perl")),
    ("perl-ssl", perl("libio-socket-ssl-perl")),
    ("perl-anyevent", perl("libanyevent-perl")),
    (
        "eventmachine",
        Sources {
            from: "ruby-eventmachine",
            build: "true",
            tests: Tests::Each(
                "cd tests && grep -oE 'def test_[a-zA-Z0-9_]+' test_*.rb | sed 's,def ,,' | \
                 grep -vE 'resolver|running|system|fork_reactor'",
                "cd tests && ruby -I. -I/usr/lib/ruby/vendor_ruby \"${1%:*}\" -n \"${1#*:}\"",
            ),
        },
    ),
    (
        "libmicrohttpd",
        Sources {
            from: "libmicrohttpd",
            build: "./configure --disable-doc --disable-examples --disable-https >c.log && make >b.log && \
                    make -C src/testcurl check TESTS= >t.log && make -C src/microhttpd check TESTS= >t.log",
            tests: Tests::Each(
                "ls src/testcurl/test_*.c src/testcurl/perf_*.c src/microhttpd/test_[cdosu]*.c | sed 's,[.]c$,,'",
                "! test -x \"$1\" || \"./$1\"",
            ),
        },
    ),
    (
        "pyftpdlib",
        Sources {
            from: "pypi:pyftpdlib pytest psutil pyOpenSSL",
            // The package lacks its tests, which the source archive has.
            build: "pip3 download -q --no-deps --no-binary :all: pyftpdlib && \
                    tar xf pyftpdlib-*.tar.gz && mv pyftpdlib-*/tests tests",
            tests: Tests::AtOnce(
                // The servers of these tests handle each connection in its own process.
                "PYTHONPATH=$PWD /usr/bin/python3 -P -m pytest -c /dev/null --rootdir . -q -rA \
                 -p no:cacheprovider -k 'not MProc' tests/test_functional*.py tests/test_servers.py \
                 tests/test_ioloop.py | sed -nE \
                 's,^PASSED ([^ ]+).*,ok \\1,p;s,^(FAILED|ERROR) ([^ ]+).*,failed \\2,p'",
            ),
        },
    ),
    (
        "memcached",
        Sources {
            from: "memcached",
            build: "./configure --disable-docs >c.log && make all memcached-debug timedrun sizes >b.log",
            tests: Tests::Each("ls t/*.t | grep -vE 'tls|extstore|proxy'", "prove \"$1\""),
        },
    ),
    (
        "redis",
        Sources {
            from: "redis",
            // The suite tests Debian's own programs.
            build: "ln -sf /usr/bin/redis-* src",
            tests: Tests::Each(
                "cd tests && ls unit/*.tcl unit/type/*.tcl integration/*.tcl | sed 's,[.]tcl$,,' | \
                 grep -vE 'replication$|psync$|psync2|corrupt|dismiss|convert|violations|tls'",
                "./runtest --clients 1 --single \"$1\"",
            ),
        },
    ),
    (
        "uvloop",
        Sources {
            from: "pypi:uvloop pytest psutil pyOpenSSL",
            // The package lacks its tests, which the source archive has.
            build: "pip3 download -q --no-deps --no-binary :all: uvloop && tar xf uvloop-*.tar.gz && \
                    mv uvloop-*/tests tests",
            tests: Tests::AtOnce(
                "PYTHONPATH=$PWD /usr/bin/python3 -P -m pytest -q -rA -p no:cacheprovider \
                 tests/test_tcp.py tests/test_sockets.py tests/test_pipes.py tests/test_unix.py \
                 tests/test_process.py | sed -nE \
                 's,^PASSED ([^ ]+).*,ok \\1,p;s,^(FAILED|ERROR) ([^ ]+).*,failed \\2,p'",
            ),
        },
    ),
    (
        "tcl",
        Sources {
            from: "tcl8.6",
            build: "true",
            // A test that fails has a second line with its name alone.
            tests: Tests::AtOnce(
                "cd tests && for file in socket http http11 httpold event exec zlib; do \
                 tclsh $file.test -verbose p -tmpdir .. | sed -nE \
                 's,^[+]{4} (.*) PASSED$,ok \\1,p;s,^==== ([^ ]+) FAILED$,failed \\1,p'; done",
            ),
        },
    ),
    (
        "php",
        Sources {
            from: "php8.2",
            build: "ls ext/standard/tests/streams/*.phpt ext/standard/tests/network/*.phpt \
                    ext/standard/tests/http/*.phpt ext/sockets/tests/*.phpt >list",
            tests: Tests::AtOnce(
                "TEST_PHP_EXECUTABLE=/usr/bin/php NO_INTERACTION=1 php run-tests.php -q -P --no-color \
                 --set-timeout 30 -r list | sed -nE \
                 's,.*PASS .*\\[([^ ]+)\\] *$,ok \\1,p;s,.*FAIL .*\\[([^ ]+)\\] *$,failed \\1,p'",
            ),
        },
    ),
    (
        "apr",
        Sources {
            from: "apr",
            build: "./configure >c.log && make >b.log && make -C test >t.log",
            tests: Tests::Each(
                "echo testsock testsockets testsockopt testpoll testpipe testproc",
                "cd test && ./testall \"$1\"",
            ),
        },
    ),
    (
        "waitress",
        Sources {
            from: "pypi:waitress pytest",
            // The package lacks its tests, which the source archive has.
            build: "pip3 download -q --no-deps --no-binary :all: waitress && \
                    tar xf waitress-*.tar.gz && mv waitress-*/tests tests",
            tests: Tests::AtOnce(
                "PYTHONPATH=$PWD /usr/bin/python3 -P -m pytest -c /dev/null --rootdir . -q -rA \
                 -p no:cacheprovider tests | sed -nE \
                 's,^PASSED ([^ ]+).*,ok \\1,p;s,^(FAILED|ERROR) ([^ ]+).*,failed \\2,p'",
            ),
        },
    ),
    (
        "zeromq",
        Sources {
            from: "zeromq3",
            build: "cmake -S . -B b -DWITH_DOCS=OFF -DBUILD_STATIC=OFF >c.log && make -C b >b.log 2>&1",
            tests: Tests::Each(
                "ls b/bin | grep -E '^(unit)?test_' | grep -vE 'tipc|fuzzer'",
                "cd b && bin/\"$1\"",
            ),
        },
    ),
    (
        "c-ares",
        Sources {
            from: "c-ares",
            build: "./configure --enable-tests --disable-shared >c.log && make -C src/lib >b.log && \
                    make -C test arestest >t.log",
            // The servers of these tests are in the same process.
            tests: Tests::AtOnce(
                "cd test && ./arestest -4 --gtest_filter='*Mock*' | sed -nE \
                 's,^\\[       OK \\] ([^ ]+) .*,ok \\1,p;s,^\\[  FAILED  \\] ([^ ]+) \\(.*,failed \\1,p'",
            ),
        },
    ),
    (
        "curl",
        Sources {
            from: "curl",
            build: "./configure --with-openssl --disable-shared --disable-ldap --without-libpsl \
                    --disable-manual >c.log && make >b.log && make -C tests >t.log",
            tests: Tests::AtOnce(
                "cd tests && perl ./runtests.pl -n -a -p '!flaky' 1 to 400 | awk '/^test [0-9]/{test = $2} \
                 / OK \\(/{print \"ok \" substr(test, 1, 4)} / FAILED/{print \"failed \" substr(test, 1, 4)}'",
            ),
        },
    ),
    (
        "gevent",
        Sources {
            from: "pypi:gevent psutil",
            build: "true",
            tests: Tests::Each(
                "cd gevent/tests && ls test__socket*.py test__s[es]*.py test__makefile_ref.py \
                 test__backdoor.py test__pywsgi.py | grep -vE 'dns|socketpair' | sed 's,[.]py$,,'",
                "PYTHONPATH=$PWD /usr/bin/python3 -m gevent.tests.\"$1\"",
            ),
        },
    ),
];

/// A Perl distribution, whose Debian package brings what its tests need.
const fn perl(package: &'static str) -> Sources {
    Sources {
        from: package,
        build: "true",
        tests: Tests::Each(
            "find t -name '*.t' | grep -vE 'author|live|external' | sort",
            "perl -I. -Ilib -It/lib \"$1\"",
        ),
    }
}

impl Sources {
    /// Fetches and builds the sources in a directory below `below`, and returns that directory.
    pub fn ready(&self, below: &Path) -> Result<PathBuf, String> {
        let name = self.from.replace([' ', ':'], "-");
        let place = below.join(name);
        let sources = place.join("sources");
        if sources.exists() {
            return Ok(sources);
        }
        fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
        match (
            self.from.strip_prefix("pypi:"),
            self.from.strip_prefix("crate:"),
        ) {
            (_, Some(name)) => {
                let script = format!(
                    "mkdir f && cd f && cargo init -q --vcs none --lib --name fetched && cargo add -q {name} && \
                     cargo vendor -q >/dev/null && mv vendor/{name} ../sources"
                );
                let mut shell = run::command("sh");
                run::output(shell.args(["-c", &script]).current_dir(&place))?;
            }
            (Some(packages), _) => {
                let mut pip = run::command("/usr/bin/python3");
                pip.args(["-m", "pip", "install", "-q", "--target"])
                    .arg(&sources);
                run::output(pip.args(packages.split(' ')))?;
            }
            (None, None) => self.fetch(&place)?,
        }
        run::output(
            run::command("sh")
                .args(["-c", self.build])
                .current_dir(&sources),
        )?;
        Ok(sources)
    }

    /// Fetches Debian's sources with package lists of its own, since the machine's may name only
    /// binaries.
    fn fetch(&self, place: &Path) -> Result<(), String> {
        let script = format!(
            "mkdir -p lists/partial && . /etc/os-release && \
             echo \"deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
             http://deb.debian.org/debian $VERSION_CODENAME main\" >list && \
             set -- -q -o Dir::Etc::SourceList=$PWD/list -o Dir::Etc::SourceParts=- \
             -o Dir::State::Lists=$PWD/lists && \
             apt-get \"$@\" update && apt-get \"$@\" source {} && \
             rm -r lists && ln -s */ sources",
            self.from
        );
        run::output(run::command("sh").args(["-c", &script]).current_dir(place)).map(|_| ())
    }
}
