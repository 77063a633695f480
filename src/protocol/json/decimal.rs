//! The exact value of a number, however it is written.
//!
//! No float is involved: beyond 2⁵³ two numbers can differ and be the same float.

use std::fmt;

/// Numbers with more digits before or after the point are written with an exponent.
const PLAIN_DIGITS_MAX: i64 = 21;

/// A number as its digits, without zeros at either end, times a power of ten. Zero has no digits.
#[derive(Debug, PartialEq, Eq)]
pub struct Decimal {
    is_negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// Reads a number as JSON writes it. `None`: it is none, or its exponent is beyond all reason.
    pub fn read(text: &str) -> Option<Self> {
        let (is_negative, unsigned) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_number = is_digits(whole)
            && (whole == "0" || !whole.starts_with('0'))
            && is_digits(fraction)
            && is_digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent));
        let all = [whole, fraction].concat();
        let significant = all.trim_end_matches('0');
        let digits = significant.trim_start_matches('0');
        if !is_number || digits.is_empty() {
            let zero = Self { is_negative: false, digits: String::new(), exponent: 0 };
            return is_number.then_some(zero);
        }
        let shift =
            i64::try_from(all.len() - significant.len()).ok()? - i64::try_from(fraction.len()).ok()?;
        let exponent = exponent.parse::<i64>().ok()?.checked_add(shift)?;
        Some(Self { is_negative, digits: digits.to_owned(), exponent })
    }
}

/// One spelling for each number: that of JSON, with an exponent only where there would be too many zeros.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { digits, exponent, .. } = self;
        if digits.is_empty() {
            return f.write_str("0");
        }
        if self.is_negative {
            f.write_str("-")?;
        }
        let count = i64::try_from(digits.len()).unwrap_or(i64::MAX);
        let point = count.saturating_add(*exponent);
        let zeros = |count: i64| "0".repeat(usize::try_from(count).unwrap_or(0));
        if *exponent >= 0 && point <= PLAIN_DIGITS_MAX {
            write!(f, "{digits}{}", zeros(*exponent))
        } else if *exponent < 0 && point > 0 {
            let (before, after) = digits.split_at(usize::try_from(point).unwrap_or(0));
            write!(f, "{before}.{after}")
        } else if *exponent < 0 && point > -PLAIN_DIGITS_MAX {
            write!(f, "0.{}{digits}", zeros(-point))
        } else {
            write!(f, "{digits}e{exponent}")
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_same(one: &str, other: &str) -> bool {
        let (one, other) = (Decimal::read(one), Decimal::read(other));
        one.is_some() && one == other
    }

    #[test]
    fn numbers_are_compared_by_value() {
        let same: &[&[&str]] = &[
            &["42", "42.0", "42.000", "4.2e1", "4.2E+1", "420e-1", "0.42e2", "42e0"],
            &["0", "-0", "0.0", "0e9", "-0.00e-7"],
            &["-7", "-7.0", "-70e-1"],
            &["9007199254740993", "9007199254740993.0"],
            &["9007199254740992"],
            &["1e400", "10e399"],
            &["123456789012345678901234567890"],
            &["1.5", "15e-1"],
            &["1e21", "1e+21", "1000000000000000000000"],
        ];
        let values = || same.iter().enumerate().flat_map(|(row, all)| all.iter().map(move |one| (row, *one)));
        for (row, one) in values() {
            for (other_row, other) in values() {
                assert_eq!(is_same(one, other), row == other_row, "{one} {other}");
            }
        }
    }

    #[test]
    fn what_json_does_not_write_is_no_number() {
        for text in [
            "",
            "-",
            "+7",
            "--7",
            "007",
            "00",
            ".5",
            "5.",
            "5.e1",
            "1e",
            "1e+",
            "1e--1",
            "1e1.0",
            "0x10",
            "1 ",
            " 1",
            "1_0",
            "Infinity",
            "NaN",
            "٤٢",
            "1e99999999999999999999",
            "42.0.0",
        ] {
            assert_eq!(Decimal::read(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn another_spelling_is_equal_and_another_number_is_not(
            number in any::<i64>(),
            zeros in 0..5_usize,
            other in any::<i64>(),
        ) {
            let (written, zeros) = (number.to_string(), "0".repeat(zeros + 1));
            let with_exponent = format!("{number}{zeros}e-{}", zeros.len());
            let fraction = format!("{number}.{zeros}");
            prop_assert!(is_same(&written, &fraction));
            prop_assert!(is_same(&written, &with_exponent));
            prop_assert_eq!(is_same(&written, &other.to_string()), number == other);
        }
    }
}
