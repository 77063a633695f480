//! Numbers compared by value, exactly, however they are written.
//!
//! No float is involved: beyond 2⁵³ two numbers can differ and be the same float.

/// Whether both are numbers as JSON writes them, and equal: `42`, `42.0` and `4.2e1` are.
pub(super) fn equal(one: &str, other: &str) -> bool {
    let (one, other) = (Decimal::read(one), Decimal::read(other));
    one.is_some() && one == other
}

/// A number as its digits, without zeros at either end, times a power of ten. Zero has no digits.
#[derive(PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// `None` also if the exponent is beyond all reason.
    fn read(text: &str) -> Option<Self> {
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(text) => (true, text),
            None => (false, text),
        };
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, read_exponent(exponent)?),
            None => (text, 0),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (mantissa, None),
        };
        let fraction_is_good = fraction.is_none_or(is_digits);
        if !is_digits(whole) || (whole.len() > 1 && whole.starts_with('0')) || !fraction_is_good {
            return None;
        }
        let fraction = fraction.unwrap_or_default();
        let all = [whole, fraction].concat();
        let digits = all.trim_end_matches('0');
        let shift = i64::try_from(all.len() - digits.len()).ok()? - i64::try_from(fraction.len()).ok()?;
        let digits = digits.trim_start_matches('0').to_owned();
        if digits.is_empty() {
            return Some(Self { is_negative: false, digits, exponent: 0 });
        }
        Some(Self { is_negative, digits, exponent: exponent.checked_add(shift)? })
    }
}

fn read_exponent(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if is_digits(digits) { text.parse().ok() } else { None }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
                assert_eq!(equal(one, other), row == other_row, "{one} {other}");
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
            assert!(!equal(text, text), "{text:?}");
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
            prop_assert!(equal(&written, &fraction));
            prop_assert!(equal(&written, &with_exponent));
            prop_assert_eq!(equal(&written, &other.to_string()), number == other);
        }
    }
}
