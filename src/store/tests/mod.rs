//! Stores from outside, with faults of the disk.

mod crashes;
mod disk;
mod files;
mod gathering;
mod model;
mod records;
mod setup;
