//! Endpoints that share a path: what they are called, and what rules and limits mean by that.

use protocol::route::filter::compile;

use super::*;

/// Two endpoints at a path, and whatever else is written.
fn shared_path(second: &str, more: &str) -> Config {
    parsed(&format!(
        "{}[[endpoint]]\npath = \"/mcp\"\nupstreams = [\"b\"]\n{second}\n{more}",
        base_with("path = \"/mcp\"", "path = \"/mcp\"\nhosts = [\"a.test\"]")
    ))
}

#[test]
fn rules_and_limits_hold_without_the_sibling_of_their_endpoint() {
    let config = shared_path(
        "hosts = [\"b.test\"]\nenabled = false",
        "[[rule]]\nname = \"r\"\neffect = \"deny\"\nendpoints = [\"a.test/mcp\"]\n\
         [[limit]]\nname = \"l\"\nby = [\"endpoint\"]\nrate = \"1/h\"\nendpoints = [\"a.test/mcp\"]\n\
         [[limit]]\nname = \"path\"\nby = [\"endpoint\"]\nrate = \"1/h\"\nendpoints = [\"/mcp\"]",
    );
    let [endpoint] = &config.endpoints[..] else { panic!("{:?}", config.endpoints) };
    assert_eq!(endpoint.name, "a.test/mcp");
    let of_rule = compile(config.rules[0].endpoints.as_ref().unwrap()).unwrap();
    assert!(of_rule.is_match(&endpoint.name));
    for limit in &config.rate_limits {
        assert!(limit.endpoints.contains(&endpoint.name), "{limit:?}");
    }
}

#[test]
fn the_name_of_an_endpoint_is_no_glob() {
    for second in ["hosts = [\"*.test\"]", "hosts = [\"*.test\"]\nenabled = false"] {
        let config = shared_path(
            second,
            "[[rule]]\nname = \"r\"\neffect = \"allow\"\nendpoints = [\"*.test/mcp\"]\n\
             [[rule]]\nname = \"glob\"\neffect = \"allow\"\nendpoints = [\"?.test/mcp\"]",
        );
        let rule = |number: usize| compile(config.rules[number].endpoints.as_ref().unwrap()).unwrap();
        assert!(!rule(0).is_match("a.test/mcp") && rule(0).is_match("*.test/mcp"), "{second}");
        assert!(rule(1).is_match("a.test/mcp"));
    }
}
