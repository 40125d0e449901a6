//! The contents of `packaging/`: the systemd unit is valid, and the recipe makes a Debian package.
//! Each is tested where its tool is installed.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// False, and prints a line, if the program is missing.
fn has(program: &str, test: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output()
        .is_ok_and(|output| output.status.success());
    if !found {
        let _ = writeln!(std::io::stderr(), "ignored: {test}: no {program}");
    }
    found
}

/// A directory that is removed after its test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn unit_of_an_interface_is_valid() {
    if !has("systemd-analyze", "unit_of_an_interface_is_valid") {
        return;
    }
    let place = Directory::new("mux-unit");
    let unit = root().join("packaging/systemd/millstream-mux@.service");
    let text = fs::read_to_string(unit).unwrap();
    assert!(text.contains("ExecStart=/usr/bin/mill mux %i"));
    // The tool requires the program to exist.
    let text = text.replace("/usr/bin/mill", "/bin/true");
    let unit = place.0.join("millstream-mux@eth0.service");
    fs::write(&unit, text).unwrap();
    let said = run(Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&unit));
    assert!(!said.contains("millstream-mux"), "{said}");
}

#[test]
fn unit_outlives_its_interface() {
    let unit = root().join("packaging/systemd/millstream-mux@.service");
    let text = fs::read_to_string(unit).unwrap();
    let device = "sys-subsystem-net-devices-%i.device";
    assert!(text.contains(&format!("Wants={device}\n")));
    assert!(text.contains(&format!("After={device}")));
    for stops in [
        "BindsTo=",
        "Requires=",
        "Requisite=",
        "PartOf=",
        "StopWhenUnneeded=",
    ] {
        assert!(
            !text.contains(stops),
            "{stops} would end the service with the interface"
        );
    }
}

#[test]
fn recipe_makes_a_debian_package() {
    if !has("dh", "recipe_makes_a_debian_package")
        || !has("dpkg-buildpackage", "recipe_makes_a_debian_package")
    {
        return;
    }
    let place = Directory::new("mux-debian");
    let source = place.0.join("source");
    fs::create_dir_all(source.join("docs")).unwrap();
    for (from, to) in [("packaging", "packaging"), ("docs/man", "docs/man")] {
        run(Command::new("cp")
            .arg("-r")
            .arg(root().join(from))
            .arg(source.join(to)));
    }
    run(Command::new("ln")
        .args(["-s", "packaging/debian", "debian"])
        .current_dir(&source));
    // A compiler that does nothing: the recipe is tested, not the program.
    let tools = place.0.join("tools");
    fs::create_dir_all(&tools).unwrap();
    let cargo = "#!/bin/sh\nmkdir -p target/release && cp /bin/true target/release/mill\n";
    fs::write(tools.join("cargo"), cargo).unwrap();
    run(Command::new("chmod").arg("755").arg(tools.join("cargo")));
    let path = format!(
        "{}:{}",
        tools.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    run(Command::new("dpkg-buildpackage")
        .args(["--build=binary", "--no-sign", "--no-check-builddeps"])
        .env("PATH", path)
        .current_dir(&source));
    let package = fs::read_dir(&place.0)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|name| name == "deb"))
        .expect("a package");
    let content = run(Command::new("dpkg-deb").arg("-c").arg(package));
    for file in [
        "./usr/bin/mill\n",
        "./usr/lib/systemd/system/millstream-mux@.service\n",
        "./usr/share/man/man8/mill-mux.8.gz\n",
    ] {
        assert!(content.contains(file), "{file} is not in {content}");
    }
}
