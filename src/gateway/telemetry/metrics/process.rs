//! What the system says of the process, by the names that all clients of Prometheus use.
//!
//! Read below `/proc` at every scrape. What cannot be read keeps its last value.

use std::fs;

use prometheus::{Counter, Gauge, IntGauge};

use super::declare::metrics;
use super::gauge;

metrics! {
    /// Metrics of the process.
    pub struct ProcessMetrics {
        /// Time on CPUs, in seconds.
        cpu: Counter = "process_cpu_seconds_total";
        /// Start of the process, in seconds since 1970.
        started: Gauge = "process_start_time_seconds";
        /// Resident memory, in bytes.
        resident: IntGauge = "process_resident_memory_bytes";
        /// Virtual memory, in bytes.
        virtual_memory: IntGauge = "process_virtual_memory_bytes";
        /// Open file descriptors.
        open_files: IntGauge = "process_open_fds";
        /// Maximum number of open file descriptors.
        open_files_max: IntGauge = "process_max_fds";
        /// Threads.
        threads: IntGauge = "process_threads";
    }
}

/// Fields of `/proc/self/stat`, counted from the one after the name: the state is the first.
mod field {
    pub(super) const USER_TICKS: usize = 11;
    pub(super) const SYSTEM_TICKS: usize = 12;
    pub(super) const THREADS: usize = 17;
    pub(super) const STARTED_TICKS: usize = 19;
    pub(super) const VIRTUAL_BYTES: usize = 20;
    pub(super) const RESIDENT_PAGES: usize = 21;
}

impl ProcessMetrics {
    pub(crate) fn read(&self) {
        if let Ok(stat) = fs::read_to_string("/proc/self/stat") {
            self.read_stat(&stat);
        }
        // Its size is how many there are since Linux 6.2; to name thousands of them takes milliseconds.
        match fs::metadata("/proc/self/fd").map_or(0, |files| files.len()) {
            0 => {
                if let Ok(files) = fs::read_dir("/proc/self/fd") {
                    // One of them is the directory that is being read.
                    self.open_files.set(gauge(files.count()).saturating_sub(1));
                }
            }
            files => self.open_files.set(gauge(files)),
        }
        let max = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        self.open_files_max.set(max.map_or(i64::MAX, gauge));
    }

    #[expect(clippy::cast_precision_loss, reason = "times of a process are exact enough in floating point")]
    fn read_stat(&self, stat: &str) {
        // The name is in parentheses and may hold anything.
        let Some((_, fields)) = stat.rsplit_once(')') else { return };
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let number = |index: usize| -> Option<u64> { fields.get(index)?.parse().ok() };
        let ticks_per_s = rustix::param::clock_ticks_per_second() as f64;
        if let (Some(user), Some(system)) = (number(field::USER_TICKS), number(field::SYSTEM_TICKS)) {
            self.cpu.inc_by(((user + system) as f64 / ticks_per_s - self.cpu.get()).max(0.0));
        }
        if let (Some(ticks), Some(booted_s)) = (number(field::STARTED_TICKS), booted_s()) {
            self.started.set(booted_s as f64 + ticks as f64 / ticks_per_s);
        }
        if let Some(threads) = number(field::THREADS) {
            self.threads.set(gauge(threads));
        }
        if let Some(bytes) = number(field::VIRTUAL_BYTES) {
            self.virtual_memory.set(gauge(bytes));
        }
        if let Some(pages) = number(field::RESIDENT_PAGES) {
            self.resident.set(gauge(pages.saturating_mul(rustix::param::page_size() as u64)));
        }
    }
}

fn booted_s() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::registry::Registry;
    use super::*;

    #[test]
    fn a_name_with_parentheses_is_no_obstacle() {
        let process = ProcessMetrics::register(&Registry::new()).unwrap();
        process.read_stat(
            "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 0 0 0 900000 100000 0 0 20 0 17 0 5 4096 3 18446744073709551615",
        );
        assert_eq!((process.threads.get(), process.virtual_memory.get()), (17, 4096));
        assert!(process.cpu.get() >= 10_000.0 - 1.0, "{}", process.cpu.get());
        let resident = process.resident.get();
        assert_eq!(resident, 3 * i64::try_from(rustix::param::page_size()).unwrap());
    }

    #[test]
    fn this_process_is_known() {
        let process = ProcessMetrics::register(&Registry::new()).unwrap();
        process.read();
        let gauges = [&process.resident, &process.open_files, &process.open_files_max, &process.threads];
        for gauge in gauges {
            assert!(gauge.get() > 0, "{gauge:?}");
        }
        assert!(process.started.get() > 1.0e9);
    }
}
