//! `trunkline --version`, and what it is made of when a release is built.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Folder, trunkline};

/// The program that cargo runs before it builds.
fn build_script() -> PathBuf {
    let builds = Path::new(env!("OUT_DIR")).ancestors().nth(2).expect("the directory of build scripts");
    let ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_ours = name.strip_prefix("trunkline-").is_some_and(|hash| !hash.contains('-'));
        is_ours && path.join("build-script-build").exists()
    };
    let entries = std::fs::read_dir(builds).expect("it can be read").flatten().map(|entry| entry.path());
    let newest = entries.filter(ours).max_by_key(|path| {
        std::fs::metadata(path.join("build-script-build")).and_then(|metadata| metadata.modified()).ok()
    });
    newest.expect("it was built").join("build-script-build")
}

fn version_in(folder: &Path, variables: &[(&str, &str)]) -> String {
    let output = Command::new(build_script())
        .current_dir(folder)
        .envs([("CARGO_PKG_VERSION", "1.2.3"), ("PROFILE", "release")])
        .env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap_or(folder))
        .env_remove("TRUNKLINE_REVISION")
        .envs(variables.iter().copied())
        .output()
        .expect("the build script starts");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).expect("text");
    let line = said.lines().find_map(|line| line.strip_prefix("cargo:rustc-env=TRUNKLINE_VERSION="));
    line.expect("a version").to_owned()
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@example.com"])
        .args(["-c", "core.hooksPath=/dev/null", "-c", "commit.gpgsign=false"])
        .args(arguments)
        .current_dir(folder)
        .env("GIT_COMMITTER_DATE", "2026-02-03T06:05:06+02:00")
        .output()
        .expect("git is installed");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

#[test]
fn the_version_is_said() {
    let (output, _) = trunkline(&["--version"], None);
    let said = String::from_utf8(output.stdout).expect("text");
    assert_eq!(said, format!("trunkline {}\n", env!("TRUNKLINE_VERSION")));
    assert!(said.starts_with(concat!("trunkline ", env!("CARGO_PKG_VERSION"))), "{said}");
}

#[test]
fn a_release_tells_its_commit_wherever_there_is_one() {
    let folder = Folder::new();
    let source = folder.path();
    std::fs::create_dir(source.join("src")).expect("a folder");
    std::fs::write(source.join("src/main.rs"), "one").expect("written");
    std::fs::write(source.join("README.md"), "one").expect("written");
    assert_eq!(version_in(source, &[]), "1.2.3", "an archive");
    assert_eq!(version_in(source, &[("TRUNKLINE_REVISION", "20260102.abc")]), "1.2.3+20260102.abc");

    git(source, &["init", "--quiet"]);
    git(source, &["add", "."]);
    git(source, &["commit", "--quiet", "--message", "one"]);
    let commit = git(source, &["rev-parse", "--short=8", "HEAD"]);
    let expected = format!("1.2.3+20260203040506.{commit}");
    assert_eq!(version_in(source, &[]), expected);
    assert_eq!(version_in(source, &[("TZ", "Asia/Tokyo")]), expected, "wherever it is built");
    assert_eq!(version_in(source, &[("PROFILE", "debug")]), "1.2.3");
    assert_eq!(version_in(&source.join("src"), &[]), "1.2.3", "an archive in another's repository");
    std::fs::write(source.join("README.md"), "two").expect("written");
    assert_eq!(version_in(source, &[]), expected, "nothing that it is built from");
    std::fs::write(source.join("src/main.rs"), "two").expect("written");
    assert_eq!(version_in(source, &[]), format!("{expected}.changed"));
}
