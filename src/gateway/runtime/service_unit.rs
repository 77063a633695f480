//! The unit of systemd that this process is the main one of. A user's own systemd is not looked at.

/// Its name, such as `trunkline.service`; `None`: somebody else started the process, be it in the group of a unit.
pub(super) fn of_process() -> Option<String> {
    let started = std::env::var("SYSTEMD_EXEC_PID").ok();
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    service(&groups).filter(|_| is_started(started.as_deref(), std::process::id()))
}

/// True if systemd started the process of this number, by `SYSTEMD_EXEC_PID`, which older ones do not set. What a service
/// starts inherits it.
fn is_started(started: Option<&str>, process: u32) -> bool {
    started.is_none_or(|started| started.parse() == Ok(process))
}

/// The name of the service, of the text of `/proc/self/cgroup`: of both versions of control groups, one may say nothing.
fn service(groups: &str) -> Option<String> {
    groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let is_of_systemd = matches!(controllers, "" | "name=systemd");
        let is_of_user = path.split('/').any(|group| group.starts_with("user@"));
        let service = path.split('/').rfind(|group| group.ends_with(".service"))?;
        (is_of_systemd && !is_of_user).then(|| service.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_names_the_service() {
        for (groups, expected) in [
            ("0::/system.slice/trunkline.service\n", Some("trunkline.service")),
            ("0::/system.slice/trunkline.service/inner\n", Some("trunkline.service")),
            ("4:memory:/a.service\n1:name=systemd:/system.slice/b.service\n", Some("b.service")),
            ("0::/system.slice/system-gate.slice/gate@a.service\n", Some("gate@a.service")),
            ("1:name=systemd:/\n0::/outer/system.slice/c.service\n", Some("c.service")),
            ("0::/\n", None),
            ("0::/user.slice/user-1000.slice/session-3.scope\n", None),
            ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/trunkline.service\n", None),
            ("nonsense\n", None),
        ] {
            assert_eq!(service(groups).as_deref(), expected, "{groups}");
        }
    }

    #[test]
    fn a_process_that_a_service_starts_is_not_the_service() {
        for (started, expected) in [(Some("7"), true), (Some("8"), false), (Some(""), false), (None, true)] {
            assert_eq!(is_started(started, 7), expected, "{started:?}");
        }
    }
}
