//! The `weather` demo server: reads only, and everything it says may be cached by anyone.
//!
//! Worth trying: `forecast` has structured output, a link to a resource and a parameter mirrored in
//! `Mcp-Param-City`; `compare` reports progress; the city of `packing-list` and of `weather://city/{name}`
//! can be completed.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::cities::{CITIES, City, DAYS_MAX, Day};
use super::methods::{Caching, Profile, ServerContent, ToolOutcome};
use super::request::{RpcRequest, text};
use super::rpc::RpcFault;
use super::schema;

const STATIONS_URI: &str = "weather://stations";
const CITY_URI_PREFIX: &str = "weather://city/";
const CITY_URI_TEMPLATE: &str = "weather://city/{name}";
const DEFAULT_DAYS: i32 = 3;

pub(super) struct Weather;

impl ServerContent for Weather {
    fn profile(&self) -> Profile {
        Profile {
            name: "trunkline-demo-weather",
            title: "Demo weather",
            instructions: "Invented weather for six cities: Oslo, Lisbon, Zürich, Nairobi, Osaka and Lima. \
                           Use forecast for one city and compare for several.",
            capabilities: json!({ "tools": {}, "resources": {}, "prompts": {}, "completions": {} }),
            tools: vec![forecast_tool(), compare_tool()],
            resource_templates: vec![json!({
                "uriTemplate": CITY_URI_TEMPLATE,
                "name": "city",
                "title": "Weather of a city",
                "description": "The forecast of one city for a week",
                "mimeType": "application/json",
            })],
            prompts: vec![json!({
                "name": "packing-list",
                "title": "Packing list",
                "description": "What to pack for a few days in a city",
                "arguments": [
                    { "name": "city", "description": "Where the journey goes", "required": true },
                    { "name": "days", "description": "How many days; 3 when left out" },
                ],
            })],
            resource_caching: Caching { ttl_ms: 60_000, scope: "public" },
        }
    }

    fn resources(&self) -> Vec<Value> {
        vec![json!({
            "uri": STATIONS_URI,
            "name": "stations",
            "title": "Weather stations",
            "description": "The station of every city",
            "mimeType": "application/json",
        })]
    }

    fn call_tool(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
        _: &RpcRequest,
    ) -> Result<ToolOutcome, RpcFault> {
        Ok(match name {
            "forecast" => forecast(arguments),
            _ => compare(arguments),
        })
    }

    fn read_resource(&self, uri: &str) -> Option<Value> {
        let data = if uri == STATIONS_URI {
            let station = |city: &City| json!({ "station": city.station, "city": city.name });
            json!({ "stations": CITIES.iter().map(station).collect::<Vec<_>>() })
        } else {
            let slug = uri.strip_prefix(CITY_URI_PREFIX)?;
            forecast_data(CITIES.iter().find(|city| city.slug == slug)?, DAYS_MAX)
        };
        Some(json!({ "uri": uri, "mimeType": "application/json", "text": data.to_string() }))
    }

    fn prompt_messages(&self, _: &str, arguments: &Map<String, Value>) -> Vec<Value> {
        let city = text(arguments, "city");
        let days = text(arguments, "days").parse().unwrap_or(DEFAULT_DAYS);
        let weather = match City::find(city) {
            Some(city) => describe(city, days),
            None => format!("There is no forecast for {city}; ask about its climate."),
        };
        let text = format!(
            "I am packing for {city}. Make a short packing list that fits this weather.\n\n{weather}"
        );
        vec![json!({ "type": "text", "text": text })]
    }

    fn completions(&self, reference: &str, argument: &str) -> Vec<String> {
        match (reference, argument) {
            ("packing-list", "city") => CITIES.iter().map(|city| city.name.to_owned()).collect(),
            ("packing-list", "days") => (1..=DAYS_MAX).map(|days| days.to_string()).collect(),
            (CITY_URI_TEMPLATE, "name") => CITIES.iter().map(|city| city.slug.to_owned()).collect(),
            _ => Vec::new(),
        }
    }

    fn can_change(&self, _: &str) -> bool {
        false
    }
}

fn forecast_tool() -> Value {
    json!({
        "name": "forecast",
        "title": "Forecast",
        "description": "The weather of one city for the next days",
        "inputSchema": schema::arguments(&json!({
            "city": {
                "type": "string",
                "description": "Oslo, Lisbon, Zürich, Nairobi, Osaka or Lima",
                "minLength": 1,
                "maxLength": 64,
                "x-mcp-header": "City",
            },
            "days": {
                "type": "integer",
                "description": "How many days",
                "minimum": 1,
                "maximum": DAYS_MAX,
                "default": DEFAULT_DAYS,
            },
        })),
        "outputSchema": schema::object(&json!({
            "city": { "type": "string" },
            "days": {
                "type": "array",
                "items": schema::object(&json!({
                    "day": { "type": "integer", "description": "1 is the first day" },
                    "condition": { "type": "string" },
                    "high_celsius": { "type": "integer" },
                    "low_celsius": { "type": "integer" },
                    "rain_percent": { "type": "integer", "minimum": 0, "maximum": 100 },
                })),
            },
        })),
        "annotations": { "readOnlyHint": true, "openWorldHint": false },
    })
}

fn forecast(arguments: &Map<String, Value>) -> ToolOutcome {
    let asked = text(arguments, "city");
    let days = arguments.get("days").and_then(Value::as_i64).and_then(|days| i32::try_from(days).ok());
    let Some(city) = City::find(asked) else { return unknown_city(asked) };
    let days = days.unwrap_or(DEFAULT_DAYS);
    ToolOutcome::structured(&describe(city, days), &forecast_data(city, days)).linked(json!({
        "uri": format!("{CITY_URI_PREFIX}{}", city.slug),
        "name": city.slug,
        "title": format!("Weather of {}", city.name),
        "mimeType": "application/json",
    }))
}

fn compare_tool() -> Value {
    json!({
        "name": "compare",
        "title": "Compare cities",
        "description": "The mean weather of several cities over a week, with progress for every city",
        "inputSchema": schema::arguments(&json!({
            "cities": {
                "type": "array",
                "description": "The cities to compare",
                "items": { "type": "string", "minLength": 1, "maxLength": 64 },
                "minItems": 2,
                "maxItems": 6,
            },
        })),
        "outputSchema": schema::object(&json!({
            "warmest": { "type": "string" },
            "driest": { "type": "string" },
            "cities": {
                "type": "array",
                "items": schema::object(&json!({
                    "city": { "type": "string" },
                    "mean_high_celsius": { "type": "number" },
                    "mean_rain_percent": { "type": "number" },
                })),
            },
        })),
        "annotations": { "readOnlyHint": true, "openWorldHint": false },
    })
}

fn compare(arguments: &Map<String, Value>) -> ToolOutcome {
    let mut cities: Vec<&City> = Vec::new();
    for asked in arguments.get("cities").and_then(Value::as_array).into_iter().flatten() {
        let asked = asked.as_str().unwrap_or_default();
        match City::find(asked) {
            Some(city) => cities.push(city),
            None => return unknown_city(asked),
        }
    }
    let warmest = cities.iter().max_by(|one, other| mean_high(one).total_cmp(&mean_high(other)));
    let driest = cities.iter().min_by(|one, other| mean_rain(one).total_cmp(&mean_rain(other)));
    let (warmest, driest) = (warmest.map_or("", |city| city.name), driest.map_or("", |city| city.name));
    let mut means = Vec::new();
    for city in &cities {
        let (high, rain) = (mean_high(city), mean_rain(city));
        means.push(json!({ "city": city.name, "mean_high_celsius": high, "mean_rain_percent": rain }));
    }
    let data = json!({ "warmest": warmest, "driest": driest, "cities": means });
    let steps = cities.iter().map(|city| format!("Looked at {}", city.name)).collect();
    ToolOutcome { steps, ..ToolOutcome::structured(&format!("Warmest: {warmest}. Driest: {driest}."), &data) }
}

fn mean_high(city: &City) -> f64 {
    mean_of_week(city, |day| day.high_celsius)
}

fn mean_rain(city: &City) -> f64 {
    mean_of_week(city, |day| day.rain_percent)
}

/// To one decimal.
fn mean_of_week(city: &City, of_day: impl Fn(&Day) -> i32) -> f64 {
    let sum: i32 = city.forecast(DAYS_MAX).iter().map(of_day).sum();
    (f64::from(sum) / f64::from(DAYS_MAX) * 10.0).round() / 10.0
}

fn forecast_data(city: &City, days: i32) -> Value {
    json!({ "city": city.name, "days": city.forecast(days) })
}

fn describe(city: &City, days: i32) -> String {
    let mut text = format!("{}:", city.name);
    for day in city.forecast(days) {
        let _ = write!(
            text,
            "\nday {}: {}, {} to {} °C, {} % chance of rain",
            day.number, day.condition, day.low_celsius, day.high_celsius, day.rain_percent
        );
    }
    text
}

fn unknown_city(name: &str) -> ToolOutcome {
    let known: Vec<&str> = CITIES.iter().map(|city| city.name).collect();
    ToolOutcome::failed(format!("There is no forecast for {name}. Cities with one: {}.", known.join(", ")))
}
