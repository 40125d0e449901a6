//! Programs that end before their connections have delivered all data.
//!
//! The reader takes nothing until it is told to. The checks of the program's end, its status, its
//! pipes and its lock therefore come before the first byte is read.

use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use super::{FAR, TRIES, World};
use crate::run::{self, Watched};

/// Bytes on their way when the program ends.
const BYTES: usize = 1 << 20;
const PORT: u16 = 8096;
/// Time in which a program that does not wait has its page, unless the machine is very busy.
const START: Duration = Duration::from_millis(500);

/// Accepts a connection, waits for a line, and reports how many bytes come and how the stream ends.
const READER: &str = "
import socket, sys
listener = socket.create_server(('10.77.0.1', 8096))
print('listens', flush=True)
peer, _ = listener.accept()
sys.stdin.readline()
total = 0
while True:
    got = peer.recv(65536)
    total += len(got)
    if not got: break
print(total, flush=True)
";

/// Sends more than the reader takes, and ends in the way that its argument names.
const WRITER: &str = "
import ctypes, fcntl, os, socket, sys
lock = open(sys.argv[2], 'w')
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
kernel = socket.create_server(('127.0.0.1', 8097))
peer = socket.socket()
peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
peer.connect(('10.77.0.1', 8096))
peer.sendall(bytes(1 << 20))
print('sent', flush=True)
if sys.argv[1] == 'return': sys.exit(7)
if sys.argv[1] == '_exit': os._exit(7)
if sys.argv[1] == 'quick_exit': ctypes.CDLL(None).quick_exit(7)
ctypes.CDLL(None).syscall(231 if os.uname().machine == 'x86_64' else 94, 7)
";

/// The ways in which the process ends itself.
const WAYS: [&str; 4] = ["return", "_exit", "quick_exit", "exit_group"];

pub(super) fn unread(world: &World) -> Result<(), String> {
    WAYS.iter().try_for_each(|way| {
        let ended = ends(world, way);
        ended.map_err(|cause| format!("{way}: {cause}"))
    })
}

fn ends(world: &World, way: &str) -> Result<(), String> {
    let mut reader = world.kernel(&["/usr/bin/python3", "-c", READER]);
    reader.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut reader = Watched::start(&mut reader)?;
    let mut tell = reader.stdin().ok_or("no pipe to the reader")?;
    let mut says = reader.stdout().ok_or("no pipe from the reader")?;
    let mut first = [0; 8];
    says.read_exact(&mut first)
        .map_err(|error| error.to_string())?;
    let lock = world.path("lock");
    let mut writer = world.millstream(&["/usr/bin/python3", "-c", WRITER, way, &lock]);
    // The call returns only when the pipes are closed, too.
    let outcome = run::outcome(&mut writer)?;
    if outcome.status.code() != Some(7) || outcome.stdout != b"sent\n" {
        return Err(format!("{outcome:?}"));
    }
    // Nothing has been read yet, so the connection still holds most of the bytes.
    if heirs(world)? != 1 {
        return Err("no process goes on with the connection".to_owned());
    }
    // Operators see the connection in the process that delivers it.
    let words = ["ss", "-Htnp", "dport", "=", ":8096"];
    let shown = run::output(run::command(&world.mill.display().to_string()).args(words))?;
    if !(shown.contains("10.77.0.1:8096") && shown.contains("mill-heir")) {
        return Err(format!("`mill ss` does not show the heir: `{shown}`"));
    }
    run::output(run::command("flock").args(["-n", &lock, "true"]))?;
    let listens = format!("import socket; socket.create_server(('127.0.0.1', {PORT} + 1))");
    run::output(&mut super::inside(
        &world.near,
        &["/usr/bin/python3", "-c", &listens],
    ))?;
    // Another program with the same address must wait, or else it would reset the connection.
    let _server = world.kernel_server()?;
    let url = format!("http://{FAR}:8000/index.html");
    let page = world.path("next");
    // Remove the page of the previous way, which would prove nothing.
    let _ = std::fs::remove_file(&page);
    let next = world.millstream(&["curl", "-sS", "-o", &page, &url]);
    let mut next = Watched::start(&mut { next })?;
    sleep(START);
    if std::fs::metadata(&page).is_ok() {
        return Err("the next program does not wait for the heir".to_owned());
    }
    tell.write_all(b"\n").map_err(|error| error.to_string())?;
    let mut total = String::new();
    says.read_to_string(&mut total)
        .map_err(|error| error.to_string())?;
    if total.trim() != BYTES.to_string() {
        return Err(format!("{FAR} read `{}` bytes of {BYTES}", total.trim()));
    }
    if !next.wait()? || std::fs::metadata(&page).is_err() {
        return Err("the next program fails".to_owned());
    }
    nothing_is_left(world)
}

/// Number of processes that go on for programs which have ended.
fn heirs(world: &World) -> Result<usize, String> {
    let pids = run::output(run::command("ip").args(["netns", "pids", &world.near]))?;
    let is_heir = |pid: &&str| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.trim() == "mill-heir")
    };
    Ok(pids.split_whitespace().filter(is_heir).count())
}

fn nothing_is_left(world: &World) -> Result<(), String> {
    for _ in 0..TRIES {
        if heirs(world)? == 0 {
            return Ok(());
        }
        sleep(Duration::from_millis(50));
    }
    Err("the heir stays although everything is delivered".to_owned())
}
