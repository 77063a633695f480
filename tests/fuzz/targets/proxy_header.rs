//! The PROXY header: it is read as it must be or refused, and what follows the addresses changes nothing.

use protocol::proxy_header::{PREFIX_BYTES, Prefix, ProxyHeaderError};

/// The longest part behind the prefix.
const REST_BYTES_MAX: usize = 4096;

pub fn prefix_and_rest(input: &[u8]) {
    let Some((prefix, rest)) = input.split_first_chunk::<PREFIX_BYTES>() else { return };
    let read = Prefix::read(prefix);
    if prefix.starts_with(b"PROXY ") {
        assert_eq!(read, Err(ProxyHeaderError::NotOne));
    }
    let Ok(read) = read else { return };
    assert!(read.rest_bytes <= REST_BYTES_MAX);
    let client = read.client(rest);
    if client.is_ok() {
        assert_eq!(read.client(&[rest, b"more"].concat()), client);
    }
}
