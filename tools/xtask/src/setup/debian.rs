//! Debian packages, installed by apt-get. Owns the list of packages; called by [`super::setup`].

use std::path::Path;

use super::Need;
use crate::run;

/// A package, a program or file that proves its presence, and its purpose.
struct Package {
    name: &'static str,
    proof: &'static str,
    purpose: &'static str,
    wanted: fn(&Need) -> bool,
}

const fn package(name: &'static str, proof: &'static str, purpose: &'static str) -> Package {
    Package {
        name,
        proof,
        purpose,
        wanted: |need| need.tests,
    }
}

const fn demo_package(name: &'static str, proof: &'static str, purpose: &'static str) -> Package {
    Package {
        name,
        proof,
        purpose,
        wanted: |need| need.demo || need.tests,
    }
}

const fn program_package(name: &'static str, proof: &'static str) -> Package {
    Package {
        name,
        proof,
        purpose: "runs unchanged under `mill run`",
        wanted: |need| need.programs,
    }
}

const fn suite_package(name: &'static str, proof: &'static str) -> Package {
    Package {
        name,
        proof,
        purpose: "a suite that runs under `mill run`",
        wanted: |need| need.suites,
    }
}

/// The directory's name contains DPDK's version.
const MEMIF_DRIVER: &str = "/usr/lib/x86_64-linux-gnu/dpdk/pmds-*/librte_net_memif.so";

const PACKAGES: &[Package] = &[
    demo_package("gcc", "cc", "the linker that cargo calls"),
    demo_package("libc6-dev", "/usr/include/stdio.h", "what it links with"),
    demo_package("iproute2", "ip", "network namespaces and veth pairs"),
    demo_package("iputils-ping", "ping", "pings the stack"),
    demo_package("curl", "curl", "HTTP client"),
    package("busybox", "busybox", "a DHCP server and client"),
    demo_package("wrk", "wrk", "HTTP load"),
    demo_package("apache2-utils", "ab", "HTTP load"),
    demo_package("nginx", "nginx", "the rival of the crowd benchmark"),
    demo_package(
        "ca-certificates",
        "/etc/ssl/certs/ca-certificates.crt",
        "cargo's downloads",
    ),
    program_package("python3", "python3"),
    program_package("wget", "wget"),
    program_package("redis-server", "redis-server"),
    program_package("redis-tools", "redis-benchmark"),
    program_package("memcached", "memcached"),
    program_package("lighttpd", "lighttpd"),
    program_package("iperf3", "iperf3"),
    program_package("nodejs", "node"),
    program_package("default-jdk-headless", "javac"),
    program_package("libmemcached-tools", "memccapable"),
    program_package("haproxy", "haproxy"),
    program_package("apache2-bin", "apache2"),
    program_package("php-fpm", "/usr/share/doc/php-fpm"),
    suite_package("dpkg-dev", "dpkg-source"),
    suite_package("make", "make"),
    suite_package("cmake", "cmake"),
    suite_package("perl", "prove"),
    suite_package("ruby", "ruby"),
    suite_package("python3", "python3"),
    suite_package("python3-pip", "pip3"),
    suite_package(
        "libpython3.11-testsuite",
        "/usr/lib/python3.11/test/test_socket.py",
    ),
    suite_package("stress-ng", "stress-ng"),
    suite_package("libevent-dev", "/usr/include/event.h"),
    suite_package("libssl-dev", "/usr/include/openssl/ssl.h"),
    suite_package("tcl", "tclsh"),
    suite_package("php-cli", "php"),
    suite_package(
        "libcurl4-openssl-dev",
        "/usr/share/doc/libcurl4-openssl-dev",
    ),
    suite_package("libhttp-daemon-perl", "/usr/share/perl5/HTTP/Daemon.pm"),
    suite_package("libwww-perl", "/usr/share/perl5/LWP.pm"),
    suite_package("libio-socket-ssl-perl", "/usr/share/perl5/IO/Socket/SSL.pm"),
    suite_package("libanyevent-perl", "/usr/share/doc/libanyevent-perl"),
    suite_package(
        "ruby-eventmachine",
        "/usr/lib/ruby/vendor_ruby/eventmachine.rb",
    ),
    suite_package("ruby-test-unit", "/usr/share/doc/ruby-test-unit"),
    package("clang", "clang", "compiles the XDP program"),
    package("llvm", "llvm-strip", "strips its object"),
    package(
        "g++",
        "g++",
        "links the fuzz targets with libFuzzer, compiles the C examples",
    ),
    package(
        "dpdk-dev",
        "dpdk-testpmd",
        "memif peer that no one here wrote",
    ),
    package("librte-meta-net", MEMIF_DRIVER, "its memif driver"),
    // dpdk-dev depends on it (9 MB, 54 MB installed).
    package(
        "libdpdk-dev",
        "/usr/include/dpdk/rte_ethdev.h",
        "compiles the DPDK plug-in",
    ),
    package("pkgconf", "pkg-config", "finds DPDK for it"),
    package("tcpdump", "tcpdump", "reads the captures that we write"),
    package("tshark", "tshark", "decodes the captures that we write"),
    package("jc", "jc", "reads what both ss programs print"),
    package(
        "prometheus",
        "promtool",
        "scrapes, and checks the rules and the dashboard",
    ),
    demo_package("ethtool", "ethtool", "switches offloads of veth pairs"),
    package("procps", "sysctl", "settings inside a namespace"),
    package("groff-base", "groff", "formats the manual pages"),
    package(
        "diffutils",
        "diff",
        "compares the worked diff of porting.md",
    ),
    package("binutils", "nm", "lists what libmtcp exports"),
    Package {
        name: "valgrind",
        proof: "valgrind",
        purpose: "counts instructions",
        wanted: |need| need.valgrind,
    },
];

/// Installs the missing packages if this is root. Otherwise the error is the command to run.
pub fn install_missing(need: &Need) -> Result<(), String> {
    let wanted = PACKAGES.iter().filter(|package| (package.wanted)(need));
    let missing: Vec<&Package> = wanted.filter(|package| !is_present(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    let line = format!("apt-get update && apt-get install -y {}", names.join(" "));
    if run::find_program("apt-get").is_none() {
        let proofs: Vec<&str> = missing.iter().map(|package| package.proof).collect();
        return Err(format!(
            "missing: {}; this is no Debian (no apt-get), install them its way",
            proofs.join(", ")
        ));
    }
    if !rustix::process::geteuid().is_root() {
        return Err(format!(
            "missing Debian packages, run this and start again: sudo sh -c '{line}'"
        ));
    }
    println!("xtask: installing Debian packages through apt-get:");
    for package in &missing {
        println!("  {:16} {}", package.name, package.purpose);
    }
    apt_get(&["update", "-q"])?;
    let mut arguments = vec!["install", "-q", "-y", "--no-install-recommends"];
    arguments.extend(&names);
    apt_get(&arguments)?;
    match missing.iter().find(|package| !is_present(package)) {
        None => Ok(()),
        Some(package) => Err(format!(
            "{} is installed, but {} is still not there",
            package.name, package.proof
        )),
    }
}

fn is_present(package: &Package) -> bool {
    if package.proof.starts_with('/') {
        exists(package.proof)
    } else {
        run::find_program(package.proof).is_some()
    }
}

/// Whether a path exists. A `*` may end one directory's name. What follows it may be followed by a
/// version.
fn exists(pattern: &str) -> bool {
    let Some((before, after)) = pattern.split_once("*/") else {
        return Path::new(pattern).exists();
    };
    let Some((parent, prefix)) = before.rsplit_once('/') else {
        return false;
    };
    names_in(Path::new(parent)).iter().any(|directory| {
        let inside = Path::new(parent).join(directory);
        directory.starts_with(prefix)
            && names_in(&inside).iter().any(|name| name.starts_with(after))
    })
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.collect()
}

fn apt_get(arguments: &[&str]) -> Result<(), String> {
    let mut command = run::command("apt-get");
    command
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive");
    run::run(&mut command)
}
