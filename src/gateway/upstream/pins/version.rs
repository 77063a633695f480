//! Versions of the record of pins that gateways share, as they stand in Redis and in the state directory.

/// Digits of each number of a version.
const DIGITS: usize = 16;

/// The version of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// The time at which its tools were first pinned, and a random number. It stays the same for as long as nothing is lost.
    pub began: u64,
    /// Number of its changes.
    pub(super) count: u64,
    /// Tells apart what two gateways made of the same version.
    pub(super) nonce: u64,
}

impl Version {
    pub(crate) fn text(self) -> String {
        let Self { began, count, nonce } = self;
        format!("{began:016x}{count:016x}{nonce:016x}")
    }

    /// Reads what [`Self::text`] wrote.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let number = |at: usize| u64::from_str_radix(text.get(at * DIGITS..(at + 1) * DIGITS)?, 16).ok();
        let version = Self { began: number(0)?, count: number(1)?, nonce: number(2)? };
        (version.text() == text).then_some(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_they_are_written() {
        let version = Version { began: 1 << 61, count: 7, nonce: u64::MAX };
        assert_eq!(Version::read(&version.text()), Some(version));
        for nonsense in ["", "!", &version.text()[1..], &format!("{}0", version.text()), &"+".repeat(48)] {
            assert_eq!(Version::read(nonsense), None, "{nonsense}");
        }
    }
}
