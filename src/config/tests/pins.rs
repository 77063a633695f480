//! Keys of pinned definitions.

use super::*;

#[test]
fn every_mode_can_be_chosen() {
    for (written, mode) in [
        ("off", PinMode::Off),
        ("warn", PinMode::Warn),
        ("quarantine", PinMode::Quarantine),
        ("block", PinMode::Block),
    ] {
        let lines = format!("[upstream.a]\npins = \"{written}\"\npins_age_max = \"5s\"");
        let upstream = parsed(&base_with("[upstream.a]", &lines)).upstreams.remove(0);
        assert_eq!(upstream.pins, PinsConfig { mode, age_max: Duration::from_secs(5) });
        assert_eq!(upstream.pins.mode.label(), written);
    }
}

#[test]
fn what_is_no_mode_or_out_of_range_is_refused() {
    for lines in ["pins = \"on\"", "pins = true", "pins_age_max = \"999ms\"", "pins_age_max = \"25h\""] {
        let text = base_with("[upstream.a]", &format!("[upstream.a]\n{lines}"));
        assert!(parse(&text).is_err(), "{lines}");
    }
    assert!(parse(&base_with("[listener]", "[limits]\npins_bytes_max = \"1\"\n[listener]")).is_err());
}
