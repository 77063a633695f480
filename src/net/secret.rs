//! Secrets of the operator: where they are read from. They are never shown.
//!
//! A [`Secret`] has no way to be printed: no `Display`, and a `Debug` that says nothing of it. Its memory is cleared
//! when the last holder is gone. Errors name the source only. Reading blocks: it belongs to the building of a
//! snapshot, never to a call.

use std::fmt;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use http::header::InvalidHeaderValue;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::regular_file;
use config::SecretSource;

/// Told where a credential is not the one that is wanted.
pub const CREDENTIALS_AGE: &str = "whether a reload brings a new credential depends on the version of systemd, and a restart of the service always does";

/// More than any token, password or key with its certificates needs.
const SECRET_BYTES_MAX: usize = 64 << 10;
/// Permission bits of everybody who is neither the owner nor of the group.
const MODE_OTHERS: u32 = 0o007;

/// Bytes that are not for anybody's eyes.
#[derive(Clone)]
pub struct Secret(Arc<Zeroizing<Vec<u8>>>);

/// Why there is no secret. Names the source, never what is in it.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The source cannot be read.
    #[error("cannot read a secret from {source_name}: {reason}")]
    Read {
        /// The source.
        source_name: SecretSource,
        /// What the system says.
        reason: io::Error,
    },
    /// There is no such variable.
    #[error("cannot read a secret from {0}: it is not set")]
    NotSet(SecretSource),
    /// There are no credentials.
    #[error(
        "cannot read a secret from {0}: $CREDENTIALS_DIRECTORY is not set; the unit must load the credential"
    )]
    NoCredentials(SecretSource),
    /// There is nothing in it.
    #[error("cannot read a secret from {0}: it is empty")]
    Empty(SecretSource),
    /// It is no secret.
    #[error("cannot read a secret from {0}: it is longer than {SECRET_BYTES_MAX} bytes")]
    TooLong(SecretSource),
}

impl Secret {
    /// What `source` holds, without a newline at its end.
    pub fn read(source: &SecretSource) -> Result<Self, SecretError> {
        let mut bytes = match source {
            SecretSource::File(path) => read_file(source, path)?,
            SecretSource::Env(name) => {
                let value = std::env::var_os(name).ok_or_else(|| SecretError::NotSet(source.clone()))?;
                Zeroizing::new(std::os::unix::ffi::OsStringExt::into_vec(value))
            }
            SecretSource::Credential(name) => {
                let folder = std::env::var_os("CREDENTIALS_DIRECTORY")
                    .ok_or_else(|| SecretError::NoCredentials(source.clone()))?;
                read_file(source, &Path::new(&folder).join(name))?
            }
        };
        if bytes.len() > SECRET_BYTES_MAX {
            return Err(SecretError::TooLong(source.clone()));
        }
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
            if bytes.last() == Some(&b'\r') {
                bytes.pop();
            }
        }
        if bytes.is_empty() {
            return Err(SecretError::Empty(source.clone()));
        }
        Ok(Self(Arc::new(bytes)))
    }

    /// A secret that was not read from a source, such as a token that was fetched.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Zeroizing::new(bytes)))
    }

    /// The bytes themselves. What is made of them must not be shown either.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

/// `Basic` with a user, who has no colon, and a password. Marked as sensitive.
pub fn basic(user: &[u8], password: &[u8]) -> Result<HeaderValue, InvalidHeaderValue> {
    let pair = Zeroizing::new([user, b":", password].concat());
    let text = Zeroizing::new(format!("Basic {}", STANDARD.encode(&*pair)));
    let mut value = HeaderValue::from_str(&text)?;
    value.set_sensitive(true);
    Ok(value)
}

impl SecretError {
    /// True if a credential is kept from this process, though the service may have it. `ExecReload=` of a unit with a mount
    /// namespace does not see credentials, up to systemd 256: their directory cannot be entered, is not there, or is empty.
    pub fn is_withheld_credential(&self, is_of_service: bool) -> bool {
        match self {
            Self::NoCredentials(_) => true,
            Self::Read { source_name: SecretSource::Credential(_), reason } => match reason.kind() {
                io::ErrorKind::PermissionDenied => true,
                io::ErrorKind::NotFound => is_of_service && has_no_credential(),
                _ => false,
            },
            _ => false,
        }
    }
}

fn has_no_credential() -> bool {
    let folder = std::env::var_os("CREDENTIALS_DIRECTORY").unwrap_or_default();
    std::fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none())
}

/// The warning for a file with a secret that everybody on this machine may use; `None`: its mode is fine, or unknown.
pub fn exposure(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok().filter(is_exposed)?;
    Some(format!("{}: {EXPOSED} (mode {:04o})", path.display(), metadata.mode() & 0o7777))
}

const EXPOSED: &str = "everybody on this machine may use a file that holds a secret: chmod o-rwx";

fn is_exposed(metadata: &std::fs::Metadata) -> bool {
    metadata.mode() & MODE_OTHERS != 0
}

fn read_file(source: &SecretSource, path: &Path) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    let failed = |reason| SecretError::Read { source_name: source.clone(), reason };
    let file = regular_file::open(path).map_err(failed)?;
    if is_exposed(&file.metadata().map_err(failed)?) {
        tracing::warn!(path = %path.display(), "{EXPOSED}");
    }
    // With room for all of it at once, growing leaves no copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(SECRET_BYTES_MAX + 1));
    file.take(SECRET_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Takes as long whatever differs.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.expose().ct_eq(other.expose()).into()
    }
}

impl Eq for Secret {}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read_text(text: &[u8]) -> Result<Secret, SecretError> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        fs::write(&path, text).expect("written");
        Secret::read(&SecretSource::File(path))
    }

    #[test]
    fn one_newline_at_the_end_does_not_count() {
        let cases: [(&[u8], &[u8]); 5] = [
            (b"hunter2", b"hunter2"),
            (b"hunter2\n", b"hunter2"),
            (b"hunter2\r\n", b"hunter2"),
            (b"hunter2\n\n", b"hunter2\n"),
            (b" hunter2 ", b" hunter2 "),
        ];
        for (text, expected) in cases {
            assert_eq!(read_text(text).expect("read").expose(), expected, "{text:?}");
        }
    }

    #[test]
    fn what_cannot_be_a_secret_is_refused_by_the_name_of_its_source() {
        for (text, expected) in
            [(vec![], "is empty"), (vec![b'\n'], "is empty"), (vec![b'a'; 65 << 10], "is longer")]
        {
            let error = read_text(&text).expect_err("refused").to_string();
            assert!(error.contains("/secret") && error.contains(expected), "{error}");
        }
        let cases = [
            (SecretSource::File("/nowhere/at-all".into()), "/nowhere/at-all"),
            (SecretSource::Env("TRUNKLINE_TEST_NOT_SET".to_owned()), "TRUNKLINE_TEST_NOT_SET"),
            (SecretSource::Credential("absent".to_owned()), "absent"),
        ];
        for (source, expected) in cases {
            let error = Secret::read(&source).expect_err("refused").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn nothing_of_it_is_printed() {
        let secret = Secret::from_bytes(b"hunter2".to_vec());
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "Secret Some(Secret)");
        assert_eq!(secret, Secret::from_bytes(b"hunter2".to_vec()));
        assert_ne!(secret, Secret::from_bytes(b"hunter3".to_vec()));
    }
}
