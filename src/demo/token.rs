//! Tokens that nobody can guess.

use super::rpc::RpcError;

/// 128 random bits in hexadecimal.
pub(super) fn unguessable() -> Result<String, RpcError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| RpcError::internal("The system has no randomness to give"))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}
