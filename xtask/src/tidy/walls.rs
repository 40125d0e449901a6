//! The walls of DESIGN §1: which crate may depend on which. Read from each Cargo.toml.

use std::path::PathBuf;

use super::Finding;
use super::source::Package;

/// A crate of ours and the crates of ours that it may depend on.
struct Wall {
    name: &'static str,
    may_use: &'static [&'static str],
    /// In addition, in its own tests.
    may_test_with: &'static [&'static str],
    /// What it may take from crates.io.
    foreign: Foreign,
}

#[derive(PartialEq)]
enum Foreign {
    /// Nothing: it builds where there is no operating system, and for as long as we live.
    None,
    Any,
}

const fn wall(name: &'static str, may_use: &'static [&'static str]) -> Wall {
    Wall {
        name,
        may_use,
        may_test_with: &[],
        foreign: Foreign::Any,
    }
}

const WALLS: &[Wall] = &[
    Wall {
        foreign: Foreign::None,
        may_test_with: &[],
        ..wall("wire", &[])
    },
    Wall {
        foreign: Foreign::None,
        ..wall("tcp", &["wire"])
    },
    Wall {
        may_test_with: &["wire"],
        ..wall("ring", &[])
    },
    wall("packetio", &["wire", "ring"]),
    wall("stack", &["wire", "tcp", "ring", "packetio"]),
    wall("millstream", &["wire", "tcp", "ring", "packetio", "stack"]),
    Wall {
        may_test_with: &["packetio"],
        ..wall("posix", &["millstream"])
    },
    wall("capi", &["ring", "millstream", "posix"]),
    wall("preload", &["millstream", "posix"]),
    wall("packetdrill", &["millstream", "packetio", "posix"]),
    wall("mux", &["wire", "ring", "packetio"]),
    wall("measure", &[]),
    wall("mill", &["measure", "millstream", "packetio", "mux", "sim"]),
    wall(
        "sim",
        &[
            "wire",
            "tcp",
            "ring",
            "packetio",
            "stack",
            "millstream",
            "posix",
        ],
    ),
    wall("integration", EVERYTHING),
    wall("millstream-fuzz", EVERYTHING),
    wall("bench", EVERYTHING),
    wall("xtask", &[]),
];

const EVERYTHING: &[&str] = &[
    "wire",
    "tcp",
    "ring",
    "packetio",
    "stack",
    "millstream",
    "posix",
    "capi",
    "preload",
    "mux",
    "measure",
    "mill",
    "sim",
];

/// A package whose dependencies break through a wall.
pub fn check(package: &Package) -> Vec<Finding> {
    let manifest = &package.manifest;
    let Some(wall) = WALLS.iter().find(|wall| wall.name == manifest.name) else {
        let cause = format!(
            "crate {} has no row in WALLS of xtask/src/tidy/walls.rs",
            manifest.name
        );
        return vec![finding(package, &manifest.name, cause)];
    };
    let mut findings = Vec::new();
    for name in manifest
        .dependencies
        .iter()
        .chain(&manifest.build_dependencies)
    {
        if !may_use(wall, name) {
            findings.push(finding(package, name, breach(wall, name)));
        }
    }
    for name in &manifest.dev_dependencies {
        let ours = EVERYTHING.contains(&name.as_str());
        if ours
            && !may_use(wall, name)
            && !wall.may_test_with.contains(&name.as_str())
            && name != "sim"
        {
            findings.push(finding(
                package,
                name,
                breach(wall, name) + ", not even in tests",
            ));
        }
    }
    findings
}

fn may_use(wall: &Wall, name: &str) -> bool {
    if EVERYTHING.contains(&name) {
        wall.may_use.contains(&name)
    } else {
        wall.foreign == Foreign::Any
    }
}

fn breach(wall: &Wall, name: &str) -> String {
    let allowed = if wall.may_use.is_empty() {
        "nothing of ours".to_owned()
    } else {
        wall.may_use.join(", ")
    };
    let foreign = if wall.foreign == Foreign::None {
        ", nothing from crates.io"
    } else {
        ""
    };
    format!(
        "{} depends on {name}; its wall allows {allowed}{foreign}",
        wall.name
    )
}

fn finding(package: &Package, item: &str, cause: String) -> Finding {
    let file: PathBuf = package.directory.join("Cargo.toml");
    Finding {
        file,
        line: 0,
        rule: "walls",
        item: item.to_owned(),
        cause,
    }
}
