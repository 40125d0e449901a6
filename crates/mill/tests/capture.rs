//! `mill capture` of a server that answers curl: tshark decodes the file without errors, and a
//! reader that is stopped, killed or hostile does not harm the server.

mod world;

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use observe::agent::{Agent, Joined};
use observe::client::Client;
use observe::message::kind;
use observe::place;
use observe::reader::{Name, Value};
use ring::doorbell::StackBell;
use ring::frame_log::{FrameLog, FrameLogReader};
use ring::published::Flag;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use world::{CURL, OURS, Server, World};

const MILL: &str = env!("CARGO_BIN_EXE_mill");
/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `is_so`.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A world whose server has a document of `bytes` bytes.
fn serving(name: &str, bytes: usize) -> Option<(World, Server)> {
    let world = World::new(name)?;
    let document = world.write("site/a", &world::noise(bytes));
    let site = document.parent().unwrap();
    let words = [&["--wire", "xdp:right"][..], &OURS].concat();
    let server = world.serve("ours", site, &words);
    Some((world, server))
}

/// curl downloads the document.
#[track_caller]
fn download(world: &World) {
    let got = world.kernel(&[&CURL[..], &["-f", "-o", "/dev/null", "http://10.78.0.2/a"]].concat());
    let complaint = String::from_utf8_lossy(&got.stderr);
    assert!(got.status.success(), "{complaint}");
}

/// A `mill capture` into a file.
struct Capture(Child);

impl Capture {
    /// Begins a capture, which is on when this returns.
    fn begin(words: &[&str], file: &Path) -> Self {
        Self::begin_by(Command::new(MILL), words, file)
    }

    fn begin_by(mut command: Command, words: &[&str], file: &Path) -> Self {
        command.arg("capture").args(words).arg("-w").arg(file);
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        until("the file begins", || {
            std::fs::metadata(file).is_ok_and(|file| file.len() > 0)
        });
        Self(child)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Ends the capture; returns the numbers of frames captured and missed.
    fn end(mut self) -> [u64; 2] {
        self.signal(Signal::INT);
        let mut said = String::new();
        let mut stderr = self.0.stderr.take().unwrap();
        std::io::Read::read_to_string(&mut stderr, &mut said).unwrap();
        assert!(self.0.wait().unwrap().success(), "{said}");
        let numbers = said.split_whitespace().filter_map(|word| word.parse().ok());
        let numbers: Vec<u64> = numbers.take(2).collect();
        numbers.try_into().unwrap_or_else(|_| panic!("{said}"))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // The capture may be over.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The output of tshark; `None` if it is not installed.
fn tshark(words: &[&str]) -> Option<String> {
    let output = Command::new("tshark").args(words).output();
    let Ok(output) = output else {
        eprintln!("ignored: tshark is not installed");
        return None;
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A field of all frames that a display filter matches. Each frame is decoded alone, since tshark
/// takes HTTP over an overlapping retransmission for an error.
fn field(file: &Path, filter: &str, name: &str) -> Option<Vec<String>> {
    let alone = "tcp.desegment_tcp_streams:FALSE";
    let read = ["-r", file.to_str().unwrap(), "-o", alone];
    let text = tshark(&[&read[..], &["-Y", filter, "-T", "fields", "-e", name]].concat())?;
    Some(text.lines().map(str::to_owned).collect())
}

/// Frames in which tshark finds errors: malformed ones, TCP analysis, checksums. A kernel on a veth
/// pair sends partial checksums, so TCP's are checked in the server's frames only.
fn faults(file: &Path) -> Option<String> {
    let wrong = "_ws.malformed || (tcp.analysis.flags && !tcp.analysis.window_update) \
        || ip.checksum.status == 0 || (tcp.srcport == 80 && tcp.checksum.status == 0)";
    let checked = ["tcp.check_checksum:TRUE", "ip.check_checksum:TRUE"];
    let checked = checked.iter().flat_map(|one| ["-o", one]);
    let file = file.to_str().unwrap();
    let words = ["-r", file, "-Y", wrong].into_iter().chain(checked);
    tshark(&words.collect::<Vec<_>>())
}

/// Number of frames that a display filter matches in a file that is still written and may end in
/// the middle of a block. The largest number if tshark is not installed.
fn so_far(file: &Path, filter: &str) -> usize {
    let mut command = Command::new("tshark");
    let command = command.arg("-r").arg(file).args(["-Y", filter]);
    let output = command
        .args(["-T", "fields", "-e", "frame.number"])
        .output();
    output.map_or(usize::MAX, |output| {
        String::from_utf8_lossy(&output.stdout).lines().count()
    })
}

/// True if the FINs of both ends are in the file.
fn has_both_fins(file: &Path) -> bool {
    so_far(file, "tcp.flags.fin == 1") >= 2
}

/// Segments that the server has sent again.
fn sent_again(pid: &str) -> u64 {
    let mut client = client(pid).0;
    let statistics = client.statistics().unwrap();
    let names = statistics.names().unwrap();
    let slot = statistics.contexts(&names)[0].slot;
    client.publish(slot).unwrap();
    let is_it = |name: &Name| name.name == "segments_retransmitted";
    let at = names.iter().position(is_it).unwrap();
    match statistics.contexts(&names)[0].values[at] {
        Some(Value::Number(count)) => count,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn live_capture_of_curl_is_decoded_without_an_error() {
    let Some((world, server)) = serving("capture", 100_000) else {
        return;
    };
    let pid = server.pid().to_string();
    let file = world.directory.join("capture.pcapng");
    let capture = Capture::begin(&[&pid], &file);
    download(&world);
    until("the FINs are captured", || has_both_fins(&file));
    let [captured, missed] = capture.end();
    // Two frames of the document may be enough, since the bulk lane takes large ones: the sum of
    // their bytes is compared below.
    assert!(captured > 8 && missed == 0, "{captured}, {missed} missed");
    let Some(faults) = faults(&file) else {
        return;
    };
    // The kernel's handshake and ACKs have no errors on a veth pair. On a busy machine an ACK may
    // come so late that the server sends a segment again, and then it has counted that.
    let is_again = |line: &&str| line.contains("[TCP Retransmission]");
    let (again, others): (Vec<_>, Vec<_>) = faults.lines().partition(is_again);
    assert!(
        others.is_empty(),
        "frames that tshark complains about: {others:?}"
    );
    assert!(again.len() as u64 <= sent_again(&pid), "{again:?}");
    let all = field(&file, "frame", "frame.packet_flags_direction").unwrap();
    assert_eq!(all.len() as u64, captured);
    let [inbound, outbound] =
        ["1", "2"].map(|way| all.iter().filter(move |one| one.ends_with(way)));
    assert!(inbound.count() > 3 && outbound.count() > 3, "{all:?}");
    let name = field(&file, "frame.number == 1", "frame.interface_name").unwrap();
    assert_eq!(name, [format!("{pid}/0 xdp:right")]);
    let bytes = field(&file, "tcp.srcport == 80", "tcp.len").unwrap();
    let bytes: usize = bytes.iter().map(|len| len.parse::<usize>().unwrap()).sum();
    assert!(
        bytes > 100_000,
        "{bytes} bytes of the document and its head"
    );
    // The server goes on after the capture.
    download(&world);
    server.stop();
}

#[test]
fn long_document_leaves_in_full_segments_until_its_end() {
    let Some(world) = World::new("captfull") else {
        return;
    };
    let document = world.write("site/a", &world::noise(8_000_000));
    let site = document.parent().unwrap();
    let wire = ["--wire", "xdp:right,bulk=off"];
    let server = world.serve("ours", site, &[&wire[..], &OURS].concat());
    let file = world.directory.join("full.pcapng");
    let capture = Capture::begin(&[&server.pid().to_string()], &file);
    download(&world);
    until("the FINs are captured", || has_both_fins(&file));
    capture.end();
    let Some(lengths) = field(&file, "tcp.srcport == 80 && tcp.len > 0", "tcp.len") else {
        return;
    };
    let short = lengths.iter().filter(|length| *length != "1448").count();
    assert!(lengths.len() > 5_500, "{}", lengths.len());
    // The server reads 61 pieces of the file, each of which would end with a short segment. A held
    // end leaves nevertheless if an ACK comes before the next piece: where the server had no CPU
    // for a while.
    assert!(short < 30, "{short} of {} are short", lengths.len());
    server.stop();
}

#[test]
fn retransmission_in_the_trace_is_the_only_one_that_tshark_finds() {
    let Some(world) = World::new("captloss") else {
        return;
    };
    let document = world.write("site/a", &world::noise(200_000));
    let site = document.parent().unwrap();
    // One in fifty of the server's frames is lost behind the captured port.
    let wire = ["--wire", "xdp:right,tx.loss=2%,seed=7"];
    let server = world.serve("ours", site, &[&wire[..], &OURS].concat());
    let pid = server.pid().to_string();
    let file = world.directory.join("loss.pcapng");
    let capture = Capture::begin(&[&pid], &file);
    download(&world);
    until("the FINs are captured", || has_both_fins(&file));
    assert_eq!(capture.end()[1], 0, "missed");
    // tshark takes an early retransmission for a segment out of order.
    let again = "tcp.srcport == 80 && (tcp.analysis.retransmission || tcp.analysis.out_of_order)";
    let Some(again) = field(&file, again, "tcp.seq") else {
        return;
    };
    let sent = field(&file, "tcp.srcport == 80 && tcp.len > 0", "tcp.seq").unwrap();
    let mut distinct = sent.clone();
    distinct.sort();
    distinct.dedup();
    assert!(!again.is_empty(), "a loss is repaired");
    assert_eq!(again.len(), sent.len() - distinct.len(), "{again:?}");
    let malformed = field(&file, "_ws.malformed", "frame.number").unwrap();
    assert_eq!(malformed, Vec::<String>::new());
    server.stop();
}

#[test]
fn dropped_frames_are_captured_with_their_reasons() {
    let Some(world) = World::new("captdrop") else {
        return;
    };
    // The kernel computes complete checksums, so that a flipped bit is detected.
    said(Ok(world.kernel(&["ethtool", "-K", "left", "tx", "off"])));
    let document = world.write("site/a", &world::noise(400_000));
    let site = document.parent().unwrap();
    let wire = ["--wire", "xdp:right,rx.corrupt=20%,seed=3"];
    let server = world.serve("ours", site, &[&wire[..], &OURS].concat());
    let pid = server.pid().to_string();
    let file = world.directory.join("drop.pcapng");
    let capture = Capture::begin(&[&pid, "dst host 10.78.0.2"], &file);
    download(&world);
    let dropped = "frame.comment contains \"dropped: rx_drop_\"";
    until("a drop is captured", || so_far(&file, dropped) > 0);
    capture.end();
    let Some(comments) = field(&file, "frame.comment", "frame.comment") else {
        return;
    };
    let bad = "dropped: rx_drop_tcp_checksum";
    assert!(comments.iter().any(|one| one == bad), "{comments:?}");
    let good = field(&file, "tcp && !frame.comment", "frame.number").unwrap();
    assert!(
        good.len() > comments.len(),
        "{} without a reason",
        good.len()
    );
    server.stop();
}

/// The output of a program that must succeed.
#[track_caller]
fn said(output: std::io::Result<std::process::Output>) -> String {
    let output = output.unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn tshark_reads_a_capture_from_a_pipe_with_filter_snap_length_and_count() {
    let Some((world, server)) = serving("captpipe", 50_000) else {
        return;
    };
    let pid = server.pid().to_string();
    let mut capture = Command::new(MILL)
        .args([
            "capture", &pid, "-s", "60", "-c", "12", "tcp", "src", "port", "80",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let shark = Command::new("tshark")
        .args([
            "-i",
            "-",
            "-T",
            "fields",
            "-e",
            "frame.cap_len",
            "-e",
            "tcp.srcport",
        ])
        .stdin(capture.stdout.take().unwrap())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(shark) = shark else {
        let _ = capture.kill();
        let _ = capture.wait();
        eprintln!("ignored: tshark is not installed");
        return;
    };
    // The capture begins at some time during these downloads.
    until("twelve frames are captured", || {
        download(&world);
        capture.try_wait().unwrap().is_some()
    });
    let text = said(shark.wait_with_output());
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(rows.len(), 12, "{text}");
    for row in rows {
        let (length, port) = row.split_once('\t').unwrap();
        assert!(
            length.parse::<u32>().unwrap() <= 60 && port == "80",
            "{row}"
        );
    }
    server.stop();
}

#[test]
fn wireshark_lists_a_process_and_captures_from_it() {
    let Some((world, server)) = serving("extcap", 50_000) else {
        return;
    };
    let pid = server.pid().to_string();
    let name = format!("millstream-{pid}");
    let ask = |words: &[&str]| said(Command::new(MILL).arg("capture").args(words).output());
    let listed = ask(&["--extcap-interfaces", "--extcap-version=4.0"]);
    assert!(listed.contains(&format!("{{value={name}}}")), "{listed}");
    let kind = ask(&["--extcap-interface", &name, "--extcap-dlts"]);
    assert!(kind.starts_with("dlt {number=1}"), "{kind}");
    let settings = ask(&["--extcap-interface", &name, "--extcap-config"]);
    assert!(settings.contains("{call=--snap}"), "{settings}");
    let check = |filter: &str| {
        ask(&[
            "--extcap-interface",
            &name,
            "--extcap-capture-filter",
            filter,
        ])
    };
    assert_eq!(check("tcp port 80"), "");
    assert_ne!(check("tcp portt 80"), "");
    tshark_lists(&world, &name);
    let fifo = world.directory.join("fifo");
    let path = fifo.to_str().unwrap();
    said(Command::new("mkfifo").arg(path).output());
    let words = [
        "capture",
        "--capture",
        "--extcap-interface",
        &name,
        "--fifo",
        path,
    ];
    let filter = ["--snap", "80", "--extcap-capture-filter", "tcp"];
    let mut capture = Capture(
        Command::new(MILL)
            .args([&words[..], &filter].concat())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    // Opening waits for the writer, which opens the FIFO once the capture is on.
    let mut reader = std::fs::File::open(&fifo).unwrap();
    download(&world);
    let mut head = vec![0; 1_000];
    std::io::Read::read_exact(&mut reader, &mut head).unwrap();
    assert_eq!(head[..4], [0x0a, 0x0d, 0x0d, 0x0a], "a section begins");
    // Wireshark closes the FIFO to end a capture.
    drop(reader);
    until("the capture ends", || {
        download(&world);
        capture.0.try_wait().unwrap().is_some()
    });
    assert!(capture.0.wait().unwrap().success());
    server.stop();
}

#[test]
fn pipe_that_nobody_reads_does_not_keep_a_capture_from_ending() {
    let Some((world, server)) = serving("unread", 1_000_000) else {
        return;
    };
    let fifo = world.directory.join("fifo");
    let path = fifo.to_str().unwrap();
    said(Command::new("mkfifo").arg(path).output());
    let pid = server.pid().to_string();
    for is_open in [false, true] {
        let mut ends = std::fs::OpenOptions::new();
        let ends = ends.read(true).write(true);
        let _end = is_open.then(|| ends.open(&fifo).unwrap());
        let mut command = Command::new(MILL);
        command.args(["capture", &pid, "-w", path]);
        let mut capture = Capture(command.stderr(Stdio::null()).spawn().unwrap());
        // Time to begin; then more than a pipe holds.
        std::thread::sleep(Duration::from_millis(500));
        download(&world);
        std::thread::sleep(Duration::from_millis(100));
        capture.signal(Signal::TERM);
        until("the capture ends", || {
            capture.0.try_wait().unwrap().is_some()
        });
        assert!(!capture.0.wait().unwrap().success());
    }
    download(&world);
    server.stop();
}

/// A connection to the agent of a process, and the slot of its first context.
fn client(pid: &str) -> (Client, u16) {
    let directory = place::directory().unwrap();
    let path = place::socket_path(&directory, pid.parse().unwrap());
    let mut client = Client::connect(&path).unwrap();
    let slot = client.statistics().unwrap().contexts(&[])[0].slot;
    (client, slot)
}

/// Starts or renews the capture; returns its log.
fn log(client: &mut Client, slot: u16) -> OwnedFd {
    let answer = client.ask(slot, kind::CAPTURE, &60_u32.to_le_bytes());
    answer.unwrap().file.unwrap()
}

/// tshark finds the program of `packaging` and lists the interface. A mount namespace of tshark's
/// own has the program in its folder.
fn tshark_lists(world: &World, name: &str) {
    let Some(folders) = tshark(&["-G", "folders"]) else {
        return;
    };
    let mut lines = folders.lines().filter(|line| line.contains("xtcap path"));
    let folder = lines
        .next_back()
        .and_then(|line| line.split_whitespace().last());
    let folder = folder.unwrap_or_else(|| panic!("no folder: {folders}"));
    let program = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/wireshark/millstream"
    );
    let ours = world.write("extcap/millstream", &std::fs::read(program).unwrap());
    let ours = ours.parent().unwrap().display().to_string();
    let path = Path::new(MILL).parent().unwrap().display();
    let script = format!(
        "chmod +x {ours}/millstream && mount --bind {ours} {folder} && \
         PATH={path}:$PATH tshark -D 2>/dev/null"
    );
    let listed = said(
        Command::new("unshare")
            .args(["-m", "bash", "-c", &script])
            .output(),
    );
    assert!(
        listed.contains(&format!("{name} (Millstream: mill")),
        "{listed}"
    );
}

#[test]
fn stopped_reader_misses_frames_and_the_server_waits_for_none() {
    let Some((world, server)) = serving("captstop", 12_000_000) else {
        return;
    };
    let pid = server.pid().to_string();
    let file = world.directory.join("stop.pcapng");
    let capture = Capture::begin(&[&pid], &file);
    capture.signal(Signal::STOP);
    let (mut other, slot) = client(&pid);
    let is_over = Flag::new();
    std::thread::scope(|scope| {
        // Another reader renews the capture meanwhile.
        scope.spawn(|| {
            while !is_over.is_raised() {
                log(&mut other, slot);
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        download(&world);
        is_over.raise();
    });
    capture.signal(Signal::CONT);
    download(&world);
    until("the end is captured", || has_both_fins(&file));
    let [captured, missed] = capture.end();
    assert!(captured > 100, "{captured}");
    // The log holds 8 MiB, so at most the newest frames of the first document remain. They are up
    // to 64 KiB long.
    assert!(missed > 50, "{missed} missed");
    server.stop();
}

#[test]
fn killed_reader_leaves_no_capture_on() {
    let Some((world, server)) = serving("captkill", 10_000) else {
        return;
    };
    let pid = server.pid().to_string();
    let capture = Capture::begin(&[&pid], &world.directory.join("kill.pcapng"));
    let (mut client, slot) = client(&pid);
    let first = FrameLogReader::open(log(&mut client, slot)).unwrap();
    capture.signal(Signal::KILL);
    until("a later reader gets another log", || {
        // No reader renews the capture meanwhile. Frames arrive, so the server turns.
        std::thread::sleep(Duration::from_secs(4));
        download(&world);
        !first.is_of(log(&mut client, slot).as_fd())
    });
    server.stop();
}

#[test]
fn requests_without_sense_are_refused_and_the_log_is_not_for_writing() {
    let Some((world, server)) = serving("captlie", 10_000) else {
        return;
    };
    let pid = server.pid().to_string();
    let (mut client, slot) = client(&pid);
    for body in [&b""[..], b"abc", b"abcdef", &[7; 1_000]] {
        let answer = client.ask(slot, kind::CAPTURE, body);
        assert_eq!(answer.err(), Some(Errno::INVAL));
    }
    // The fifth byte is a port's number, and there is only one port.
    let answer = client.ask(slot, kind::CAPTURE, b"abcd\x01");
    assert_eq!(answer.err(), Some(Errno::NODEV));
    for snap in [0_u32, 1, 70_000, u32::MAX] {
        let answer = client.ask(slot, kind::CAPTURE, &snap.to_le_bytes());
        let file = answer.unwrap().file.unwrap();
        assert_eq!(rustix::io::pwrite(&file, b"x", 0), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&file, 1 << 20), Err(Errno::PERM));
        download(&world);
    }
    server.stop();
}

#[test]
fn writer_that_never_pauses_does_not_keep_the_reader_from_ending() {
    let directory = std::env::temp_dir().join(format!("mst-{}-captfast", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let agent = Agent::start(&directory).unwrap();
    let joined = agent.join(0, "fast", StackBell::new().unwrap()).unwrap();
    joined.vector.publish(1, std::iter::empty());
    let is_over = Flag::new();
    let [captured, missed] = std::thread::scope(|scope| {
        scope.spawn(|| write_for_ever(joined, &is_over));
        let _end = EndOfWriter(&is_over);
        let file = directory.join("fast.pcapng");
        let mut command = Command::new(MILL);
        command.env(place::VARIABLE, &directory);
        let capture = Capture::begin_by(command, &[], &file);
        until("frames are captured", || {
            std::fs::metadata(&file).is_ok_and(|file| file.len() > 1 << 10)
        });
        capture.end()
    });
    assert!(captured > 0, "{captured} captured, {missed} missed");
    drop(agent);
    std::fs::remove_dir_all(&directory).unwrap();
}

/// Ends the writer, even if the test fails.
struct EndOfWriter<'a>(&'a Flag);

impl Drop for EndOfWriter<'_> {
    fn drop(&mut self) {
        self.0.raise();
    }
}

/// A context that answers every request with its log, and writes frames as fast as possible.
fn write_for_ever(mut joined: Joined, is_over: &Flag) {
    let mut log = FrameLog::create(1 << 16, 64, &["drop_}{"]).unwrap();
    while !is_over.is_raised() {
        if let Some(mut request) = joined.mailbox.take() {
            request.file = Some(log.file().try_clone_to_owned().unwrap());
            joined.mailbox.answer(request, Ok(()));
        }
        for _ in 0..1_000 {
            let record = log.write(u64::MAX, true, &[0xff; 60], usize::MAX);
            log.drop_record(record, 1);
        }
        log.publish();
    }
}
