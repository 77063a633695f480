//! The files that a configuration names and that are read with it, so that whoever watches them knows which they are.

use std::path::Path;

use super::{
    Authorization, ClientDocuments, Config, HeaderSource, KeySource, QuerySource, SecretSource, SignIn,
    UpstreamConfig,
};

/// What is read beside the configuration itself.
#[derive(Debug, Default)]
pub struct Named<'c> {
    /// Files of certificates and public keys, and of the keys of sessions.
    pub files: Vec<&'c Path>,
    /// Where secrets are read from.
    pub secrets: Vec<&'c SecretSource>,
}

impl Config {
    /// Everything that a reload reads again, but for the keys of sessions where they are in the state directory: the
    /// gateway makes these itself.
    pub fn named(&self) -> Named<'_> {
        let mut named = Named::default();
        for tls in self.listeners.iter().filter_map(|listener| listener.tls.as_ref()) {
            named.files.extend(tls.client_ca.as_deref());
            named.files.extend(tls.certificates.iter().map(|certificate| &*certificate.chain));
            named.secrets.extend(tls.certificates.iter().map(|certificate| &certificate.key));
        }
        for issuer in &self.jwt {
            named.files.extend(issuer.ca.as_deref());
            if let KeySource::File(path) = &issuer.keys {
                named.files.push(path);
            }
        }
        named.files.extend(self.outbound.ca.as_deref());
        named.secrets.extend(self.outbound.basic.as_ref().map(|basic| &basic.password));
        named.files.extend(self.session.key_file.as_deref());
        self.sign_in.iter().for_each(|sign_in| named.add_sign_in(sign_in));
        named.secrets.extend(self.metrics.token.as_ref());
        named.secrets.extend(self.admin.as_ref().and_then(|admin| admin.token.as_ref()));
        self.upstreams.iter().for_each(|upstream| named.add(upstream));
        named
    }
}

impl<'c> Named<'c> {
    fn add_sign_in(&mut self, sign_in: &'c SignIn) {
        self.files.extend(sign_in.key_file.as_deref());
        if let ClientDocuments::Files(paths) = &sign_in.client_documents {
            self.files.extend(paths.iter().map(|path| &**path));
        }
        self.secrets.extend(sign_in.secrets());
    }

    fn add(&mut self, upstream: &'c UpstreamConfig) {
        self.files.extend(upstream.tls.ca.as_deref());
        if let Some((certificate, key)) = &upstream.tls.identity {
            self.files.push(certificate);
            self.secrets.push(key);
        }
        let headers = upstream.credentials.headers.iter().filter_map(|(_, source)| match source {
            HeaderSource::Secret(source) => Some(source),
            HeaderSource::Text(_) => None,
        });
        self.secrets.extend(headers);
        let query = upstream.credentials.query.iter().filter_map(|(_, source)| match source {
            QuerySource::Secret(source) => Some(source),
            QuerySource::Text(_) => None,
        });
        self.secrets.extend(query);
        match &upstream.credentials.authorization {
            None => {}
            Some(Authorization::Bearer(source) | Authorization::Basic { password: source, .. }) => {
                self.secrets.push(source);
            }
            Some(Authorization::OAuth(oauth)) => {
                self.files.extend(oauth.ca.as_deref());
                self.secrets.push(&oauth.client_secret);
            }
        }
        let of_child = upstream.command.iter().flat_map(|command| &command.secret_env);
        self.secrets.extend(of_child.map(|(_, source)| source));
    }
}
