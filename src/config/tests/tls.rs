//! TLS of listeners, and trusted proxies.

use super::*;

const CERTIFICATE: &str = r#"{ chain = "/c.pem", key = { file = "/k.pem" } }"#;

/// [`BASE`] with further keys of its listener.
fn listener(keys: &str) -> String {
    let address = "address = \"127.0.0.1:8080\"\n";
    base_with(address, &format!("{address}{keys}\n"))
}

fn tls(keys: &str) -> ListenerTls {
    parsed(&listener(&format!("[listener.tls]\n{keys}"))).listeners[0].tls.clone().expect("TLS")
}

#[test]
fn tls_has_defaults() {
    let expected = ListenerTls {
        certificates: vec![CertificateFiles {
            chain: "/c.pem".into(),
            key: SecretSource::File("/k.pem".into()),
        }],
        client_certificates: CertificateDemand::None,
        client_ca: None,
        version_min: TlsVersion::V1_2,
    };
    assert_eq!(tls(&format!("certificates = [{CERTIFICATE}]")), expected);
    let all = tls(&format!(
        "certificates = [{CERTIFICATE}, {{ chain = \"/d.pem\", key = {{ credential = \"d\" }} }}]\n\
         client_certificates = \"optional\"\nclient_ca = \"/ca.pem\"\nversion_min = \"1.3\""
    ));
    assert_eq!(all.certificates[1].key, SecretSource::Credential("d".into()));
    assert_eq!(all.client_ca, Some("/ca.pem".into()));
    assert_eq!((all.client_certificates, all.version_min), (CertificateDemand::Optional, TlsVersion::V1_3));
}

#[test]
fn what_does_not_go_together_is_an_error() {
    for (keys, expected) in [
        (
            "[listener.tls]".to_owned(),
            "[listener.tls] has no `certificates`: write for example `certificates = [{ chain = ",
        ),
        (
            "[listener.tls]\ncertificates = [{ key = { file = \"/k.pem\" } }]".to_owned(),
            "[[listener.tls.certificates]] has no `chain`",
        ),
        (
            "[listener.tls]\ncertificates = [{ chain = \"/c.pem\" }]".to_owned(),
            "[[listener.tls.certificates]] has no `key`",
        ),
        (
            "[listener.tls]\ncertificates = [{ chain = \"c.pem\", key = { file = \"/k\" } }]".to_owned(),
            "not an absolute path",
        ),
        (
            "[listener.tls]\ncertificates = [{ chain = \"/c.pem\", key = \"hunter2\" }]".to_owned(),
            "a secret cannot stand here",
        ),
        (
            format!("[listener.tls]\ncertificates = [{CERTIFICATE}]\nclient_certificates = \"required\""),
            "`client_ca` is missing",
        ),
        (
            format!("[listener.tls]\ncertificates = [{CERTIFICATE}]\nclient_ca = \"/ca.pem\""),
            "`client_ca` says nothing",
        ),
        (
            format!("[listener.tls]\ncertificates = [{CERTIFICATE}]\nversion_min = \"1.1\""),
            "must be one of `1.2`, `1.3`",
        ),
        ("proxy_protocol = true".to_owned(), "nobody could connect"),
    ] {
        let text = listener(&keys);
        let error = parse(&text).expect_err(&keys).render("f.toml", &text);
        assert!(error.contains(expected), "{keys}\n{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn trusted_proxies_are_networks() {
    let text = format!(
        "trusted_proxies = [\"10.0.0.0/8\", \"192.0.2.7\", \"2001:db8::/32\", \"10.1.2.3/16\"]\n{BASE}"
    );
    let proxies = parsed(&text).trusted_proxies;
    for (address, expected) in [
        ("10.9.9.9", true),
        ("::ffff:10.9.9.9", true),
        ("192.0.2.7", true),
        ("192.0.2.8", false),
        ("2001:db8:1::1", true),
        ("::1", false),
    ] {
        assert_eq!(proxies.contain(address.parse().unwrap()), expected, "{address}");
    }
    for wrong in ["localhost", "10.0.0.0/33", "10.0.0", ""] {
        let text = format!("trusted_proxies = [\"{wrong}\"]\n{BASE}");
        let error = parse(&text).expect_err(wrong).to_string();
        assert!(error.contains("not a network"), "{error}");
    }
    let everybody = parsed(&format!("trusted_proxies = [\"0.0.0.0/0\"]\n{BASE}"));
    assert_eq!(everybody.warnings.len(), 1);
}

#[test]
fn a_listener_waits_for_headers_of_whom_it_can_meet() {
    for (address, proxies, is_right) in [
        ("127.0.0.1:8080", "unix", false),
        ("127.0.0.1:8080", "unix\", \"10.0.0.0/8", true),
        ("unix:/run/s", "10.0.0.0/8", false),
        ("unix:/run/s", "10.0.0.0/8\", \"unix", true),
    ] {
        let listener = format!("\"{address}\"\nproxy_protocol = true");
        let text =
            format!("trusted_proxies = [\"{proxies}\"]\n{}", base_with("\"127.0.0.1:8080\"", &listener));
        let said = parse(&text).map_err(|errors| errors.to_string());
        assert_eq!(said.is_ok(), is_right, "{address} {proxies}: {said:?}");
        assert!(is_right || said.is_err_and(|said| said.contains("nobody could connect")));
    }
}
