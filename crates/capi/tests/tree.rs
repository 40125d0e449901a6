//! A source tree like mTCP's: `cargo xtask install --prefix TREE/mtcp --static` puts headers and
//! library where its programs expect them. A Makefile that does not know Millstream builds a
//! program beside it. The program's helpers have names that the library has, too.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::lab::printed;

/// Libraries that such Makefiles name, if the machine has them.
const WANTED: [&str; 2] = ["numa", "gmp"];

fn run(command: &mut Command) -> String {
    let words = format!("{command:?}");
    printed(&[&words], &command.output().unwrap())
}

/// Installs into the directory `mtcp` of the tree, by its relative name.
fn install(tree: &Path, more: &[&str]) {
    let manifest = common::crate_directory().join("../../Cargo.toml");
    let mut command = Command::new(env!("CARGO"));
    command.args(["run", "--quiet", "--package", "xtask", "--manifest-path"]);
    command.arg(manifest).args(["--", "install", "--no-build"]);
    command.arg("--from").arg(common::library_directory());
    command.args(["--prefix", "mtcp"]).args(more);
    run(command.current_dir(tree));
}

fn links(library: &str, directory: &Path) -> bool {
    let mut command = Command::new("gcc");
    command.args(["-x", "c", "-o"]).arg(directory.join("try"));
    command.arg("-").arg(format!("-l{library}"));
    let source = directory.join("try.c");
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    command.stdin(fs::File::open(source).unwrap());
    command.output().unwrap().status.success()
}

#[test]
fn program_in_a_tree_like_mtcp_s_is_built_by_its_own_makefile() {
    let tree = common::scratch("tree");
    let (program, util) = (tree.join("apps/pair"), tree.join("util"));
    install(&tree, &["--static"]);
    for directory in [&program, &util] {
        fs::create_dir_all(directory).unwrap();
    }
    let sources = common::crate_directory().join("tests/tree");
    for (name, to) in [
        ("Makefile", &program),
        ("pair.c", &program),
        ("inside.c", &program),
        ("cpu.c", &util),
        ("cpu.h", &util),
    ] {
        fs::copy(sources.join(name), to.join(name)).unwrap();
    }
    let config = "io = loopback\nip_addr = 10.9.0.1/24\nmax_concurrency = 100\n";
    fs::write(program.join("pair.conf"), config).unwrap();
    let found = WANTED.iter().filter(|library| links(library, &program));
    let more: String = found.map(|library| format!(" -l{library}")).collect();
    let modes = [
        "-fPIE -pie",
        "-fno-pie -no-pie",
        "-std=gnu99",
        "-std=c89 -D_GNU_SOURCE",
    ];
    for mode in modes {
        let mut make = Command::new("make");
        make.args(["-s", "clean", "all"])
            .arg(format!("MODE={mode}"));
        run(make.arg(format!("MORE={more}")).current_dir(&program));
        for name in ["./pair", "./inside"] {
            let mut command = Command::new("timeout");
            command.args(["60", name, "pair.conf"]);
            let said = run(command.current_dir(&program));
            assert_eq!(said, "done\n", "{name}, {mode}");
        }
    }
    // The program finds the library at its start, without a given path.
    let mut needed = Command::new("readelf");
    let needed = run(needed.arg("-d").arg(program.join("pair")));
    assert!(!needed.contains("libmtcp"), "{needed}");
}

/// Builds the layout program with pkg-config's flags for an installation, and runs it.
fn build_by_pkg_config(tree: &Path, asked: &[&str], more: &[&str]) -> PathBuf {
    let mut command = Command::new("pkg-config");
    command.args(asked).args(["--cflags", "--libs", "libmtcp"]);
    let flags = run(command.env("PKG_CONFIG_PATH", tree.join("mtcp/lib/pkgconfig")));
    let program = tree.join("layout");
    let mut command = Command::new("gcc");
    command.arg(common::crate_directory().join("tests/layout.c"));
    command.args(flags.split_whitespace()).args(more);
    run(command.arg("-o").arg(&program));
    run(&mut Command::new(&program));
    program
}

/// A fully static program, including the C library.
#[test]
fn program_is_linked_statically_by_pkg_config() {
    let tree = common::scratch("static-prefix");
    install(&tree, &[]);
    let program = build_by_pkg_config(&tree, &["--static"], &["-static"]);
    let mut needed = Command::new("readelf");
    let needed = run(needed.arg("-d").arg(&program));
    assert!(!needed.contains("NEEDED"), "{needed}");
}

/// A distribution's layout: the program loads the shared library by its major version.
#[test]
fn program_finds_the_library_by_pkg_config() {
    let tree = common::scratch("prefix");
    install(&tree, &[]);
    let prefix = tree.join("mtcp");
    let where_it_is = format!("-Wl,-rpath,{}", prefix.join("lib").display());
    let program = build_by_pkg_config(&tree, &[], &[&where_it_is]);
    let mut needed = Command::new("readelf");
    let needed = run(needed.arg("-d").arg(&program));
    assert!(needed.contains("[libmtcp.so.1]"), "{needed}");
    assert!(prefix.join("share/man/man3/mtcp_getcounters.3").is_file());
}
