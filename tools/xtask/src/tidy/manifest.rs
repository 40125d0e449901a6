//! The parts of a Cargo.toml that the rules need: name, dependencies by kind, paths of targets.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

/// A package's manifest.
#[derive(Debug)]
pub struct Manifest {
    pub name: String,
    pub dependencies: Vec<String>,
    pub dev_dependencies: Vec<String>,
    pub build_dependencies: Vec<String>,
    /// Files that are named as a target's root, relative to the package.
    pub roots: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct Raw {
    package: Option<RawPackage>,
    #[serde(flatten)]
    tables: RawTables,
    #[serde(default)]
    target: BTreeMap<String, RawTables>,
    lib: Option<RawTarget>,
    #[serde(default)]
    bin: Vec<RawTarget>,
    #[serde(default)]
    test: Vec<RawTarget>,
    #[serde(default)]
    bench: Vec<RawTarget>,
    #[serde(default)]
    example: Vec<RawTarget>,
}

#[derive(Deserialize)]
struct RawPackage {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawTables {
    #[serde(default)]
    dependencies: BTreeMap<String, toml::Value>,
    #[serde(default)]
    dev_dependencies: BTreeMap<String, toml::Value>,
    #[serde(default)]
    build_dependencies: BTreeMap<String, toml::Value>,
}

#[derive(Deserialize)]
struct RawTarget {
    path: Option<PathBuf>,
}

impl Manifest {
    /// Parses a manifest. `None`: it is a workspace without a package.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        let raw: Raw = toml::from_str(text).map_err(|error| error.to_string())?;
        let Some(package) = raw.package else {
            return Ok(None);
        };
        let tables: Vec<&RawTables> = raw.target.values().chain([&raw.tables]).collect();
        let names = |table: fn(&RawTables) -> &BTreeMap<String, toml::Value>| {
            tables
                .iter()
                .flat_map(|tables| package_names(table(tables)))
                .collect()
        };
        let targets = [&raw.bin, &raw.test, &raw.bench, &raw.example];
        let targets = targets.into_iter().flatten().chain(raw.lib.iter());
        Ok(Some(Self {
            dependencies: names(|tables| &tables.dependencies),
            dev_dependencies: names(|tables| &tables.dev_dependencies),
            build_dependencies: names(|tables| &tables.build_dependencies),
            roots: targets.filter_map(|target| target.path.clone()).collect(),
            name: package.name,
        }))
    }
}

/// Names of the packages in a table. A key may rename its package.
fn package_names(table: &BTreeMap<String, toml::Value>) -> Vec<String> {
    let name = |(key, value): (&String, &toml::Value)| {
        let renamed = value.get("package").and_then(toml::Value::as_str);
        renamed.unwrap_or(key).to_owned()
    };
    table.iter().map(name).collect()
}
