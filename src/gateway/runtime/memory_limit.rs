//! The limit of memory of the control group that the process is in: beyond it the kernel ends the process without a word.
//!
//! Of both versions of control groups. Limits of groups around it hold as well, so that the least counts. In a container
//! the group may be named as the host sees it; its files are then those at the root of the tree.

use std::path::{Path, PathBuf};

/// The folders of the groups, of version 2 and for memory of version 1.
const UNIFIED: &str = "/sys/fs/cgroup";
const OF_MEMORY: &str = "/sys/fs/cgroup/memory";

/// The least limit that holds for the process, in bytes; `None`: there is none, or the system does not say.
pub(super) fn of_process() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    least(&groups, |file| std::fs::read_to_string(file).ok())
}

/// The same, of the text of `/proc/self/cgroup`.
fn least(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    groups.lines().filter_map(files).flatten().filter_map(|file| limit(&read(&file)?)).min()
}

/// The files that limit memory for a line of that text: those of the group, and of each around it.
fn files(line: &str) -> Option<Vec<PathBuf>> {
    let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
    let (root, file) = match controllers {
        "" => (UNIFIED, "memory.max"),
        _ if controllers.split(',').any(|controller| controller == "memory") => {
            (OF_MEMORY, "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let group = Path::new(group.trim_start_matches('/'));
    Some(group.ancestors().map(|group| Path::new(root).join(group).join(file)).collect())
}

/// Version 2 writes `max` where there is no limit, version 1 the largest number of whole pages.
fn limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| *bytes < 1 << 62)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_all_groups_around_counts() {
        let v1 = "9:name=systemd:/\n4:memory:/a/b\n1:cpu,cpuacct:/c\n0::/d\n";
        let unified = "0::/a/b\n";
        for (groups, files, expected) in [
            (
                unified,
                &[("/sys/fs/cgroup/a/b/memory.max", "1000\n"), ("/sys/fs/cgroup/a/memory.max", "max\n")][..],
                Some(1000),
            ),
            (
                unified,
                &[("/sys/fs/cgroup/a/b/memory.max", "1000\n"), ("/sys/fs/cgroup/a/memory.max", "900\n")],
                Some(900),
            ),
            (unified, &[("/sys/fs/cgroup/memory.max", "800\n")], Some(800)),
            (unified, &[("/sys/fs/cgroup/a/b/memory.max", "max\n")], None),
            (v1, &[("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "700\n")], Some(700)),
            (v1, &[("/sys/fs/cgroup/memory/memory.limit_in_bytes", "600\n")], Some(600)),
            (v1, &[("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")], None),
            (v1, &[("/sys/fs/cgroup/c/memory.max", "5\n")], None),
            ("nonsense\n::\n", &[], None),
        ] {
            let read = |file: &Path| {
                files.iter().find(|(name, _)| Path::new(name) == file).map(|(_, text)| (*text).to_owned())
            };
            assert_eq!(least(groups, read), expected, "{groups} {files:?}");
        }
    }
}
