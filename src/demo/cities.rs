//! Six cities and their invented weather.
//!
//! Invariant: the same city and day always have the same weather, so tests and examples can name it.

use serde::Serialize;

/// A place with a forecast.
#[derive(Debug, PartialEq)]
pub(super) struct City {
    /// Its name in URIs.
    pub(super) slug: &'static str,
    pub(super) name: &'static str,
    pub(super) station: &'static str,
    high_celsius: i32,
    rain_percent: i32,
}

/// The weather of one day.
#[derive(Serialize)]
pub(super) struct Day {
    /// 1 is the first day of the forecast.
    #[serde(rename = "day")]
    pub(super) number: i32,
    pub(super) condition: &'static str,
    pub(super) high_celsius: i32,
    pub(super) low_celsius: i32,
    pub(super) rain_percent: i32,
}

/// The longest forecast.
pub(super) const DAYS_MAX: i32 = 7;

/// All of them, in the order of every list.
pub(super) const CITIES: [City; 6] = [
    City { slug: "oslo", name: "Oslo", station: "OSL-1", high_celsius: 14, rain_percent: 45 },
    City { slug: "lisbon", name: "Lisbon", station: "LIS-1", high_celsius: 26, rain_percent: 10 },
    City { slug: "zurich", name: "Zürich", station: "ZRH-1", high_celsius: 19, rain_percent: 35 },
    City { slug: "nairobi", name: "Nairobi", station: "NBO-1", high_celsius: 24, rain_percent: 25 },
    City { slug: "osaka", name: "Osaka", station: "OSA-1", high_celsius: 28, rain_percent: 40 },
    City { slug: "lima", name: "Lima", station: "LIM-1", high_celsius: 20, rain_percent: 5 },
];

impl City {
    /// The city called so, by slug or name, in any case.
    pub(super) fn find(name: &str) -> Option<&'static City> {
        let name = name.trim().to_lowercase();
        CITIES.iter().find(|city| city.slug == name || city.name.to_lowercase() == name)
    }

    /// The next `count` days.
    pub(super) fn forecast(&self, count: i32) -> Vec<Day> {
        (1..=count.clamp(1, DAYS_MAX)).map(|number| self.day(number)).collect()
    }

    fn day(&self, number: i32) -> Day {
        // Swings of a few degrees and percent that differ between cities.
        let swing = (number * 5 + self.high_celsius * 3) % 7 - 3;
        let high_celsius = self.high_celsius + swing;
        let rain_percent = (self.rain_percent - swing * 6).clamp(0, 95);
        let condition = match rain_percent {
            0..=14 => "sunny",
            15..=34 => "partly cloudy",
            35..=54 => "cloudy",
            _ => "rain",
        };
        Day { number, condition, high_celsius, low_celsius: high_celsius - 8, rain_percent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cities_are_found_by_slug_and_name() {
        for name in ["zurich", "Zürich", "ZÜRICH", " zurich "] {
            assert_eq!(City::find(name).map(|city| city.slug), Some("zurich"), "{name:?}");
        }
        assert_eq!(City::find("Atlantis"), None);
    }

    #[test]
    fn a_forecast_is_bounded_and_plausible() {
        for city in &CITIES {
            assert_eq!(city.forecast(i32::MAX).len(), 7);
            assert_eq!(city.forecast(i32::MIN).len(), 1);
            for day in city.forecast(DAYS_MAX) {
                assert!(
                    (0..=100).contains(&day.rain_percent) && day.low_celsius < day.high_celsius,
                    "{}",
                    city.name
                );
            }
        }
    }
}
