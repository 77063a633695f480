//! Handshakes with servers of every kind, over the loopback interface.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, PublicKeyData as _,
    date_time_ymd,
};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::*;

/// An authority, and a server's certificate with its key.
pub(crate) struct Pki {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Pki {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("params");
        // Authorities of one name and different keys are no case of its own.
        let key = KeyPair::generate().expect("key");
        let name = format!("{:?}", Sha256::digest(key.subject_public_key_info()));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, key).expect("issuer");
        Self { issuer }
    }

    pub(crate) fn file(&self, folder: &tempfile::TempDir, name: &str) -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, self.issuer.pem()).expect("written");
        path
    }

    /// For `names`, from and to the given years.
    fn issue(&self, names: &[&str], years: (i32, i32)) -> (String, KeyPair) {
        let mut params = CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>())
            .expect("params");
        params.not_before = date_time_ymd(years.0, 1, 1);
        params.not_after = date_time_ymd(years.1, 1, 1);
        let key = KeyPair::generate().expect("key");
        (params.signed_by(&key, &self.issuer).expect("signed").pem(), key)
    }

    pub(crate) fn server(&self, names: &[&str], years: (i32, i32)) -> TlsAcceptor {
        let (chain, key) = self.issue(names, years);
        acceptor(&chain, &key, None)
    }
}

fn acceptor(chain: &str, key: &KeyPair, client_ca: Option<&Pki>) -> TlsAcceptor {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("versions");
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            roots.add(ca.issuer.der().clone()).expect("root");
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            builder.with_client_cert_verifier(verifier.build().expect("verifier"))
        }
    };
    let chain =
        CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<Vec<_>, _>>().expect("chain");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("key");
    TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).expect("config")))
}

fn settings(ca: &Path) -> TlsSettings {
    TlsSettings { ca: Some(PemFile::read(ca).expect("a CA")), ..TlsSettings::default() }
}

/// What comes of one connection to `localhost`; `server` may be silent, or speak no TLS.
async fn shake(settings: &TlsSettings, server: Option<TlsAcceptor>) -> Result<(), TlsFault> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("address");
    let serve = async {
        let (mut stream, _) = listener.accept().await.expect("accepted");
        match server {
            Some(server) => {
                if let Ok(mut stream) = server.accept(stream).await {
                    let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"!").await;
                    let _ = stream.read(&mut [0; 1]).await;
                }
            }
            None => {
                let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    .await;
            }
        }
    };
    let connector = Connectors::default().get(settings).expect("a connector");
    let connect = async {
        let stream = TcpStream::connect(address).await.expect("connected");
        let mut stream = connector.connect(stream, "localhost").await?;
        // What a server thinks of a certificate is told after the handshake.
        stream.read_u8().await.map_err(|error| TlsFault::of(&error).unwrap_or(TlsFault::BrokenOff))?;
        Ok(())
    };
    tokio::join!(connect, serve).0
}

#[tokio::test]
async fn who_is_believed_and_who_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let (ours, other) = (Pki::new(), Pki::new());
    let believed = settings(&ours.file(&folder, "ca.pem"));
    let renamed = TlsSettings { server_name: Some("tools.example".to_owned()), ..believed.clone() };
    let self_signed = {
        let key = KeyPair::generate().expect("key");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("params");
        acceptor(&params.self_signed(&key).expect("signed").pem(), &key, None)
    };
    let authority = acceptor(&ours.issuer.pem(), ours.issuer.key(), None);
    let for_clients = {
        let key = KeyPair::generate().expect("key");
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("params");
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        acceptor(&params.signed_by(&key, &ours.issuer).expect("signed").pem(), &key, None)
    };
    let valid = (2020, 4000);
    let cases = [
        ("ours", &believed, Some(ours.server(&["localhost"], valid)), Ok(())),
        ("ours, by another name", &renamed, Some(ours.server(&["tools.example"], valid)), Ok(())),
        ("another name", &believed, Some(ours.server(&["tools.example"], valid)), Err(TlsFault::OtherName)),
        ("the host's name", &renamed, Some(ours.server(&["localhost"], valid)), Err(TlsFault::OtherName)),
        ("expired", &believed, Some(ours.server(&["localhost"], (2000, 2001))), Err(TlsFault::Expired)),
        (
            "from the future",
            &believed,
            Some(ours.server(&["localhost"], (3000, 4000))),
            Err(TlsFault::NotYetValid),
        ),
        (
            "another authority",
            &believed,
            Some(other.server(&["localhost"], valid)),
            Err(TlsFault::UnknownIssuer),
        ),
        ("self-signed", &believed, Some(self_signed), Err(TlsFault::UnknownIssuer)),
        ("that of an authority", &believed, Some(authority), Err(TlsFault::Authority)),
        ("no alternative name", &believed, Some(ours.server(&[], valid)), Err(TlsFault::NoName)),
        ("for clients", &believed, Some(for_clients), Err(TlsFault::OtherPurpose)),
        ("no TLS", &believed, None, Err(TlsFault::NotTls)),
    ];
    for (name, settings, server, expected) in cases {
        assert_eq!(shake(settings, server).await, expected, "{name}");
    }
}

#[tokio::test]
async fn a_certificate_is_shown_where_one_is_wanted() {
    let folder = tempfile::tempdir().expect("a folder");
    let (ours, other) = (Pki::new(), Pki::new());
    let believed = settings(&ours.file(&folder, "ca.pem"));
    let with_identity = |pki: &Pki| {
        let (chain, key) = pki.issue(&["gateway"], (2020, 4000));
        let path = folder.path().join("client.pem");
        std::fs::write(&path, chain).expect("written");
        let key = Secret::from_bytes(key.serialize_pem().into_bytes());
        TlsSettings { identity: Some((PemFile::read(&path).expect("chain"), key)), ..believed.clone() }
    };
    let cases = [
        ("a good one", with_identity(&ours), Ok(())),
        ("none", believed.clone(), Err(TlsFault::OurCertificate)),
        ("one of a stranger", with_identity(&other), Err(TlsFault::OurCertificate)),
    ];
    for (name, settings, expected) in cases {
        let (chain, key) = ours.issue(&["localhost"], (2020, 4000));
        assert_eq!(shake(&settings, Some(acceptor(&chain, &key, Some(&ours)))).await, expected, "{name}");
    }
}

#[test]
fn settings_that_cannot_be_are_refused_by_the_name_of_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let pki = Pki::new();
    let ca = pki.file(&folder, "ca.pem");
    let garbage = folder.path().join("garbage.pem");
    std::fs::write(&garbage, "hunter2").expect("written");
    for path in [garbage.as_path(), Path::new("/nowhere/ca.pem")] {
        let error = PemFile::read(path).expect_err("refused").to_string();
        assert!(error.contains(&path.display().to_string()) && !error.contains("hunter2"), "{error}");
    }
    let stranger = KeyPair::generate().expect("key").serialize_pem();
    for key in ["hunter2", &stranger] {
        let identity = Some((PemFile::read(&ca).expect("read"), Secret::from_bytes(key.as_bytes().to_vec())));
        let settings = TlsSettings { identity, ..settings(&ca) };
        let error = Connectors::default().get(&settings).expect_err("refused").to_string();
        assert!(error.contains("ca.pem") && !error.contains("hunter2"), "{error}");
    }
    let misnamed = TlsSettings { server_name: Some("not a name".to_owned()), ..settings(&ca) };
    assert!(Connectors::default().get(&misnamed).is_err());
}

#[test]
fn equal_settings_share_what_was_built() {
    let folder = tempfile::tempdir().expect("a folder");
    let pki = Pki::new();
    let plain = settings(&pki.file(&folder, "ca.pem"));
    let renamed = TlsSettings { server_name: Some("tools.example".to_owned()), ..plain.clone() };
    let mut connectors = Connectors::default();
    let (one, two) = (connectors.get(&plain).expect("one"), connectors.get(&plain).expect("two"));
    assert!(Arc::ptr_eq(&one, &two));
    let other = connectors.get(&renamed).expect("other");
    assert!(Arc::ptr_eq(one.handshake.0.config(), other.handshake.0.config()));
    pki_changed(&folder, &plain);
}

/// A file that holds something else now is another setting, though its name is the same.
fn pki_changed(folder: &tempfile::TempDir, before: &TlsSettings) {
    assert_ne!(&settings(&Pki::new().file(folder, "ca.pem")), before);
}
