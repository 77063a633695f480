//! A moment of the calendar, as TOML writes dates, alone or in quotes. A date is its first moment, and what says no zone is
//! in UTC.

use serde_json::{Value as Json, json};
use time::{Date, Month, PrimitiveDateTime, Time, UtcOffset};
use toml::de::DeValue;
use toml::value::{Datetime, Offset};

use super::findings::{Findings, Node};
use super::schema::Definitions;
use super::value::Setting;

const EXPECTED: &str = "expected a date such as \"2027-06-30\", or a moment such as \"2027-06-30T18:00:00Z\"";

/// A moment, which becomes seconds since 1970.
#[derive(Debug)]
pub struct CalendarMoment;

impl Setting for CalendarMoment {
    type Out = u64;

    fn read(node: &Node<'_>, findings: &mut Findings) -> Option<u64> {
        let written = match node.get_ref() {
            DeValue::Datetime(written) => Some(*written),
            DeValue::String(text) => text.parse().ok(),
            _ => None,
        };
        let moment = written.and_then(|written| seconds(&written));
        if moment.is_none() {
            findings.value_error(node, EXPECTED);
        }
        moment
    }

    fn schema(_: &mut Definitions) -> Json {
        json!({ "type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ].*)?$" })
    }
}

/// Seconds since 1970. `None`: there is no date, or it is before.
fn seconds(written: &Datetime) -> Option<u64> {
    let date = written.date?;
    let date =
        Date::from_calendar_date(date.year.into(), Month::try_from(date.month).ok()?, date.day).ok()?;
    let time = match &written.time {
        Some(time) => Time::from_hms(time.hour, time.minute, time.second.unwrap_or_default()).ok()?,
        None => Time::MIDNIGHT,
    };
    let offset = match written.offset {
        Some(Offset::Custom { minutes }) => UtcOffset::from_whole_seconds(i32::from(minutes) * 60).ok()?,
        Some(Offset::Z) | None => UtcOffset::UTC,
    };
    PrimitiveDateTime::new(date, time).assume_offset(offset).unix_timestamp().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_in_utc_unless_it_says_otherwise() {
        for (text, expected) in [
            ("1970-01-01", Some(0)),
            ("2027-06-30", Some(1_814_313_600)),
            ("2027-06-30T18:00:00", Some(1_814_378_400)),
            ("2027-06-30 18:00:00Z", Some(1_814_378_400)),
            ("2027-06-30T18:00:00.5+02:00", Some(1_814_371_200)),
            ("2024-02-29", Some(1_709_164_800)),
            ("1969-12-31", None),
            ("18:00:00", None),
        ] {
            assert_eq!(text.parse().ok().and_then(|written| seconds(&written)), expected, "{text}");
        }
        for text in ["2027-02-29", "2027-13-01", "tomorrow", ""] {
            let written: Option<Datetime> = text.parse().ok();
            assert_eq!(written.and_then(|written| seconds(&written)), None, "{text}");
        }
    }
}
