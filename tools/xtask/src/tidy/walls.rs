//! The walls between crates: each manifest has exactly the dependencies of its row in
//! ARCHITECTURE.md.
//!
//! ```text
//! | crate | uses | its tests also use | from crates.io |
//! |---|---|---|---|
//! | `tcp` | `wire` | | none |
//! ```
//!
//! Findings are: a crate without a row, a row without a crate, a dependency that the table lacks,
//! and one that no manifest has.

use std::path::{Path, PathBuf};

use super::Finding;
use super::source::{self, Package};

/// The page with the table.
const PAGE: &str = "ARCHITECTURE.md";
/// Header of the table.
const HEADER: &str = "| crate | uses | its tests also use | from crates.io |";

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
struct Wall {
    name: String,
    uses: Vec<String>,
    tests_use: Vec<String>,
    /// Whether the crate may use crates.io. A crate that may not builds without an operating
    /// system.
    takes_foreign: bool,
}

/// All walls, in the order of the page.
#[derive(Debug)]
pub struct Walls(Vec<Wall>);

impl Walls {
    /// Reads the table from the page below the root.
    pub fn read(root: &Path) -> Result<Self, String> {
        Self::parse(&source::read(root, Path::new(PAGE))?)
    }

    /// Parses the text of the page.
    pub fn parse(page: &str) -> Result<Self, String> {
        let mut lines = page.lines();
        if !lines.any(|line| line.trim() == HEADER) {
            return Err(format!("{PAGE}: no table `{HEADER}`"));
        }
        let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
        let walls = rows.map(|row| {
            Wall::parse(row).ok_or_else(|| format!("{PAGE}: {row}: not a row of four cells"))
        });
        Ok(Self(walls.collect::<Result<_, _>>()?))
    }

    /// The differences between the table and all packages.
    pub fn check(&self, packages: &[Package]) -> Vec<Finding> {
        let mut findings: Vec<Finding> = packages
            .iter()
            .flat_map(|package| self.check_one(package))
            .collect();
        let has_crate = |wall: &&Wall| packages.iter().any(|one| one.manifest.name == wall.name);
        for wall in self.0.iter().filter(|wall| !has_crate(wall)) {
            let cause = format!("{} has a row and is no crate", wall.name);
            findings.push(finding(PathBuf::from(PAGE), &wall.name, cause));
        }
        findings
    }

    /// Differences between a package's dependencies and its row.
    pub fn check_one(&self, package: &Package) -> Vec<Finding> {
        let manifest = &package.manifest;
        let file = package.directory.join("Cargo.toml");
        let Some(wall) = self.0.iter().find(|wall| wall.name == manifest.name) else {
            let cause = format!("crate {} has no row in the table of {PAGE}", manifest.name);
            return vec![finding(file, &manifest.name, cause)];
        };
        let mut findings = Vec::new();
        let built = manifest
            .dependencies
            .iter()
            .chain(&manifest.build_dependencies);
        for name in built.clone().filter(|name| !self.may_use(wall, name)) {
            let cause = format!(
                "{} depends on {name}; {PAGE} draws no such arrow",
                wall.name
            );
            findings.push(finding(file.clone(), name, cause));
        }
        // A crate's tests may depend on the crate itself, to build it with a feature.
        let others = manifest.dev_dependencies.iter();
        for name in others.filter(|name| **name != wall.name) {
            let is_drawn = wall.uses.contains(name) || wall.tests_use.contains(name);
            if self.is_ours(name) && !is_drawn {
                let cause = format!(
                    "tests of {} use {name}; {PAGE} draws no such arrow",
                    wall.name
                );
                findings.push(finding(file.clone(), name, cause));
            }
        }
        let in_tests = |name: &&String| !manifest.dev_dependencies.contains(name);
        let unused = wall
            .uses
            .iter()
            .filter(|name| !built.clone().any(|one| one == *name));
        for name in unused.chain(wall.tests_use.iter().filter(in_tests)) {
            let cause = format!("{} does not depend on {name}, as {PAGE} says", wall.name);
            findings.push(finding(file.clone(), name, cause));
        }
        findings
    }

    fn is_ours(&self, name: &str) -> bool {
        self.0.iter().any(|wall| wall.name == name)
    }

    fn may_use(&self, wall: &Wall, name: &str) -> bool {
        match self.is_ours(name) {
            true => wall.uses.iter().any(|used| used == name),
            false => wall.takes_foreign,
        }
    }
}

impl Wall {
    /// Parses a row. `None`: it does not have the table's form.
    fn parse(row: &str) -> Option<Self> {
        let cells: Vec<&str> = row
            .trim()
            .trim_matches('|')
            .split('|')
            .map(str::trim)
            .collect();
        let &[name, uses, tests_use, foreign] = cells.as_slice() else {
            return None;
        };
        let takes_foreign = match foreign {
            "none" => false,
            "any" => true,
            _ => return None,
        };
        Some(Self {
            name: names(name).pop()?,
            uses: names(uses),
            tests_use: names(tests_use),
            takes_foreign,
        })
    }
}

/// Names in a cell, each between backticks.
fn names(cell: &str) -> Vec<String> {
    let quoted = cell.split('`').skip(1).step_by(2);
    quoted.map(str::to_owned).collect()
}

fn finding(file: PathBuf, item: &str, cause: String) -> Finding {
    Finding {
        file,
        line: 0,
        rule: "walls",
        item: item.to_owned(),
        cause,
    }
}
