//! `cargo xtask install`: installs libmtcp as a distribution would.
//!
//! ```text
//! PREFIX/lib/libmtcp.so -> libmtcp.so.1 -> libmtcp.so.0.1.0     libmtcp.a     pkgconfig/libmtcp.pc, mtcp.pc
//! PREFIX/lib/millstream/libmillstream_dpdk.so   where pkg-config finds libdpdk
//! PREFIX/bin/mill     lib/millstream/libmillstream_preload.so   which `mill run` preloads
//! PREFIX/include/mtcp_api.h, mtcp_epoll.h
//! PREFIX/share/man/man3/*.3, man7/*.7, man8/*.8  share/doc/libmtcp/mtcp.conf
//! ```
//!
//! With `--static` the shared library is left out. Programs that say `-lmtcp` without a run-time
//! path then get the archive, as from mTCP. Headers are also put in `src/include`, where mTCP's
//! sources have them, with those of mTCP's own that programs include.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::cli::InstallOptions;
use crate::dpdk;
use crate::guided;
use crate::run;

/// The name with the major version that programs ask for; crates/capi/build.rs has the same.
const SONAME: &str = "libmtcp.so.1";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// System libraries that libmtcp needs when linked statically. The compiler adds the unwinder,
/// which is another one with `-static`.
const PRIVATE_LIBS: &str = "-lpthread -ldl -lm";

/// Functions that mTCP's library exports beside its calls, or lacks. They are weak, since a program
/// may have its own by these names. They come first, in the archive too.
const WEAK: [&str; 19] = [
    "GetNumCPUs",
    "CoreAffinitize",
    "mtcp_abort",
    "mtcp_accept4",
    "mtcp_attach_fd",
    "mtcp_consume",
    "mtcp_eventfd",
    "mtcp_fcntl",
    "mtcp_getcounters",
    "mtcp_getusage",
    "mtcp_kernel_fd",
    "mtcp_lend",
    "mtcp_poll",
    "mtcp_recvfrom",
    "mtcp_recvmsg",
    "mtcp_send",
    "mtcp_sendmsg",
    "mtcp_sendto",
    "mtcp_shutdown",
];

/// Builds the libraries, unless told otherwise, and installs them.
pub fn install(root: &Path, options: &InstallOptions) -> Result<(), String> {
    let plain = run::target(root).join("release");
    let built = if options.profile_guided {
        guided::build(root, &["capi"], &["--lib"])?
    } else {
        if !options.no_build {
            run::run(run::cargo().args(["build", "--release", "-p", "capi", "--lib"]))?;
        }
        options.from.clone().unwrap_or_else(|| plain.clone())
    };
    let place = match &options.destdir {
        Some(below) => below.join(options.prefix.strip_prefix("/").unwrap_or(&options.prefix)),
        None => options.prefix.clone(),
    };
    archive(&built, &place.join("lib"))?;
    if !options.is_static {
        shared(&built, &place.join("lib"))?;
    }
    plugin(root, options, &plain, &place.join("lib/millstream"))?;
    command(options, &plain, &place)?;
    let capi = root.join("crates/capi");
    copy_all(&capi.join("include"), "h", &place.join("include"))?;
    if options.is_static {
        for headers in ["include", "include/internal"] {
            copy_all(&capi.join(headers), "h", &place.join("src/include"))?;
        }
    }
    for section in ["3", "7", "8"] {
        let pages = root.join(format!("docs/man/man{section}"));
        copy_all(
            &pages,
            section,
            &place.join(format!("share/man/man{section}")),
        )?;
    }
    copy_all(
        &capi.join("config"),
        "conf",
        &place.join("share/doc/libmtcp"),
    )?;
    let description = pkg_config(&options.prefix);
    for name in ["libmtcp.pc", "mtcp.pc"] {
        write(&place.join("lib/pkgconfig").join(name), &description)?;
    }
    println!("libmtcp {VERSION} is in {}", place.display());
    Ok(())
}

/// Installs `mill`, and the library that `mill run` looks for beside it.
fn command(options: &InstallOptions, from: &Path, to: &Path) -> Result<(), String> {
    const LIBRARY: &str = "libmillstream_preload.so";
    if !options.no_build {
        run::run(run::cargo().args(["build", "--release", "-p", "mill", "-p", "preload"]))?;
    }
    if !from.join("mill").is_file() || !from.join(LIBRARY).is_file() {
        println!("without the command mill: neither it nor {LIBRARY} was built");
        return Ok(());
    }
    copy(&from.join("mill"), &to.join("bin/mill"), 0o755)?;
    let library = to.join("lib/millstream").join(LIBRARY);
    copy(&from.join(LIBRARY), &library, 0o755)
}

/// Installs the DPDK plug-in, if it can be built or was built.
fn plugin(root: &Path, options: &InstallOptions, from: &Path, to: &Path) -> Result<(), String> {
    let directory = from.join("millstream");
    if !options.no_build && dpdk::is_possible() {
        dpdk::build(root, &directory)?;
    }
    let file = directory.join(dpdk::FILE);
    if !file.is_file() {
        println!("without the DPDK plug-in: pkg-config finds no libdpdk");
        return Ok(());
    }
    copy(&file, &to.join(dpdk::FILE), 0o755)
}

fn archive(from: &Path, to: &Path) -> Result<(), String> {
    let archive = to.join("libmtcp.a");
    copy(&from.join("libmtcp.a"), &archive, 0o644)?;
    let mut weaken = run::command("objcopy");
    weaken.args(WEAK.map(|name| format!("--weaken-symbol={name}")));
    run::run(weaken.arg(&archive))
}

fn shared(from: &Path, to: &Path) -> Result<(), String> {
    let full = format!("libmtcp.so.{VERSION}");
    copy(&from.join("libmtcp.so"), &to.join(&full), 0o755)?;
    link(&full, &to.join(SONAME))?;
    link(SONAME, &to.join("libmtcp.so"))
}

fn pkg_config(prefix: &Path) -> String {
    format!(
        "prefix={}\n\
         libdir=${{prefix}}/lib\n\
         includedir=${{prefix}}/include\n\
         \n\
         Name: libmtcp\n\
         Description: The socket calls of Millstream, by the names of mTCP\n\
         Version: {VERSION}\n\
         Libs: -L${{libdir}} -lmtcp\n\
         Libs.private: {PRIVATE_LIBS}\n\
         Cflags: -I${{includedir}}\n",
        prefix.display()
    )
}

/// Copies the files of a directory that have this extension. A missing directory counts as empty.
fn copy_all(from: &Path, extension: &str, to: &Path) -> Result<(), String> {
    let entries = match fs::read_dir(from) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("{}: {error}", from.display())),
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|end| end == extension) {
            copy(&path, &to.join(entry.file_name()), 0o644)?;
        }
    }
    Ok(())
}

fn make_room(path: &Path) -> Result<(), String> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    // Remove the old file instead of writing into it: a program may have it open.
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(format!("{}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    make_room(to)?;
    fs::copy(from, to)
        .and_then(|_| fs::set_permissions(to, fs::Permissions::from_mode(mode)))
        .map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))
}

fn write(to: &Path, text: &str) -> Result<(), String> {
    make_room(to)?;
    fs::write(to, text).map_err(|error| format!("{}: {error}", to.display()))
}

fn link(to: &str, at: &Path) -> Result<(), String> {
    make_room(at)?;
    symlink(to, at).map_err(|error| format!("{}: {error}", at.display()))
}
