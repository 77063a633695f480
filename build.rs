//! The version that `trunkline --version` says: `0.1.0`, and in a release build the commit that it is built from,
//! `0.1.0+20260131235959.0a1b2c3d`, with the moment of the commit first, so that a later one is a greater version.
//!
//! The source alone decides, so that it is built alike twice. Where this is no git repository, such as an archive of the
//! source, `TRUNKLINE_REVISION` may say what comes behind the `+`.

use std::path::Path;
use std::process::Command;

const REVISION: &str = "TRUNKLINE_REVISION";
/// The program is made of these alone.
const SOURCES: [&str; 5] = ["src", "config/examples", "Cargo.toml", "Cargo.lock", "build.rs"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed={REVISION}");
    let of_environment = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mut version = of_environment("CARGO_PKG_VERSION").unwrap_or_default();
    // Builds that tests and their authors make all day are not made anew for each commit.
    let is_release = of_environment("PROFILE").as_deref() == Some("release");
    if let Some(revision) = of_environment(REVISION).or_else(|| is_release.then(revision).flatten()) {
        version = format!("{version}+{revision}");
    }
    println!("cargo:rustc-env=TRUNKLINE_VERSION={version}");
}

/// The commit of this repository, and whether files have changed since.
fn revision() -> Option<String> {
    // The repository may be one of something else, in which an archive was unpacked.
    if !git(&["rev-parse", "--show-prefix"])?.is_empty() {
        return None;
    }
    let commit = git(&["log", "-1", "--abbrev=8", "--date=format-local:%Y%m%d%H%M%S", "--format=%cd.%h"])?;
    let moved = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    for path in [moved.as_str()].into_iter().chain(SOURCES) {
        if Path::new(path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let is_changed =
        !git(&[&["status", "--porcelain", "--untracked-files=no", "--"], &SOURCES[..]].concat())?.is_empty();
    Some(if is_changed { format!("{commit}.changed") } else { commit })
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(["-c", "log.showSignature=false"])
        .args(arguments)
        .env("TZ", "UTC0")
        .output()
        .ok()?;
    let said = output.status.success().then_some(output.stdout)?;
    Some(String::from_utf8(said).ok()?.trim().to_owned())
}
