//! A file in mTCP's format with `io = dpdk`: two stacks behind one DPDK port serve the kernel. The
//! driver is `net_tap`, so the test needs neither a NIC nor huge pages. Without DPDK for the
//! plug-in the test is skipped and says so.

mod common;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use common::With;
use common::kernel::noise;
use common::lab::{KERNEL, Lab, OURS, Running, printed};

/// The exit status of build.sh without DPDK.
const NO_DPDK: i32 = 3;

const FILE: &str = "io = dpdk\n\
    port = dpdk0\n\
    num_mem_ch = 4\n\
    num_cores = 2\n\
    ip_addr = 10.78.0.2/24\n\
    dpdk_args = --no-huge -m 128 --no-pci --vdev=net_tap0,iface=dtap\n";

#[test]
fn webserver_of_mtcp_s_own_file_serves_over_dpdk() {
    let Some(lab) = Lab::new("dpdk") else {
        return;
    };
    let script = common::crate_directory().join("../../plugins/dpdk/build.sh");
    let built = Command::new(script).arg(&lab.directory).output().unwrap();
    if built.status.code() == Some(NO_DPDK) {
        let _ = writeln!(
            std::io::stderr(),
            "ignored: {}",
            String::from_utf8_lossy(&built.stderr).trim()
        );
        return;
    }
    printed(&["build.sh"], &built);
    lab.write("mtcp.conf", FILE.as_bytes());
    let large = noise(5_000_000);
    lab.write("www/large", &large);
    let directory = common::crate_directory().join("examples");
    let sources = ["webserver.c", "files.c"].map(|file| directory.join(file));
    // Without the sanitizers, which would report memory that DPDK never frees.
    let program = lab.directory.join("webserver");
    common::compile("gcc", &sources, &[], With::Libmtcp, &program);
    let mut command = lab.command("ours", &program);
    command
        .args(["-f", "mtcp.conf", "-t", "2", "www"])
        .env(
            "MILLSTREAM_DPDK",
            lab.directory.join("libmillstream_dpdk.so"),
        )
        .stdout(Stdio::piped());
    let mut running = Running::start(&mut command);
    assert!(running.first_line().contains("ready"));

    lab.ip("ours", &format!("addr add {}/24 dev dtap", KERNEL[0]));
    let copy = lab.directory.join("copy");
    let url = format!("http://{}/large", OURS[0]);
    for _ in 0..4 {
        let mut curl = lab.command("ours", Path::new("curl"));
        curl.args(["-sS", "--max-time", "30", "-o"]).arg(&copy);
        printed(&["curl"], &curl.arg(&url).output().unwrap());
        assert!(fs::read(&copy).unwrap() == large);
    }
    printed(&["webserver"], &running.end());
}
