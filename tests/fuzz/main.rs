//! Looks for inputs that break the parsers, by what each input reaches in them: `python -m fuzz`, from `tests/`.
//!
//! One program for all targets; `FUZZ_TARGET` says which it is. Each target states what holds of every input, and fails
//! where that does not. Inputs that once failed stay in `seeds/`, with the others that a search begins with.

#![no_main]

mod targets;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a target");
    let known = targets::ALL.iter().find(|(known, _)| *known == name);
    known.unwrap_or_else(|| panic!("{name} is none of the targets")).1
});

fuzz_target!(|input: &[u8]| TARGET(input));
