//! Taking in a client's message: bounded in bytes, time and by what the whole process may hold.
//!
//! A message that arrives in one piece is used as it came, without a copy.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::access::limit::byte_budget::{ByteBudget, Reservation};
use crate::clock;
use crate::line::client_body::{BrokenRequest, ClientBody};
use config::LimitsConfig;
use net::chunks::Chunks;
use protocol::error::{ClientError, Error, GatewayError};

/// Up to here a message fits the connection's own read buffer and takes nothing from the process's budget.
const UNCOUNTED_BYTES: usize = 8 * 1024;
/// How much memory is set aside for a message on its sender's word.
const JOINED_BYTES_MAX: usize = 64 * 1024;
/// How much of a refused message is read to find its id.
const REFUSED_BYTES_MAX: usize = 64 * 1024;
/// How long a refused message may take to arrive.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Intake {
    incoming: Option<ClientBody>,
    bytes: Option<Bytes>,
    is_broken: bool,
    reservation: Option<Reservation>,
}

impl Intake {
    /// Nothing is read before it is asked for.
    pub(crate) fn new(incoming: ClientBody) -> Self {
        Self { incoming: Some(incoming), bytes: None, is_broken: false, reservation: None }
    }

    pub(crate) async fn collect(
        &mut self,
        limits: &LimitsConfig,
        budget: &Arc<ByteBudget>,
    ) -> Result<Bytes, Error> {
        let bytes_max = limits.body_bytes_max;
        let Some(incoming) = self.incoming.as_ref() else {
            return Ok(self.bytes.clone().unwrap_or_default());
        };
        let announced = incoming.announced();
        if announced > bytes_max as u64 {
            return Err(ClientError::TooLarge { bytes_max }.into());
        }
        let announced = usize::try_from(announced).unwrap_or(usize::MAX);
        let read = self.read(announced, bytes_max, Some(budget));
        let Some(result) = clock::within(limits.body_timeout, read).await else {
            self.is_broken = true;
            return Err(ClientError::TooSlow.into());
        };
        result
    }

    /// What a refusal needs: the message if it is small and there at once. Never fails.
    pub(crate) async fn collect_refused(&mut self) -> Option<Bytes> {
        if let Some(bytes) = &self.bytes {
            return Some(bytes.clone());
        }
        let announced = self.incoming.as_ref()?.announced();
        if self.is_broken || announced > REFUSED_BYTES_MAX as u64 {
            return None;
        }
        let announced = usize::try_from(announced).unwrap_or(REFUSED_BYTES_MAX);
        clock::within(REFUSED_TIMEOUT, self.read(announced, REFUSED_BYTES_MAX, None)).await?.ok()
    }

    /// What the message takes of the budget, for who holds it for longer than this.
    pub(crate) fn take_reservation(&mut self) -> Option<Reservation> {
        self.reservation.take()
    }

    /// True if bytes of the message are still on the connection, so that it cannot be used again.
    pub(crate) fn is_unread(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| !incoming.is_over())
    }

    /// Counts what has arrived: what is only announced costs its sender nothing.
    fn count(&mut self, length: usize, budget: &Arc<ByteBudget>) -> Result<(), Error> {
        if length <= UNCOUNTED_BYTES {
            return Ok(());
        }
        let reservation = self.reservation.get_or_insert_with(|| budget.reservation());
        if reservation.grow_to(length) { Ok(()) } else { Err(GatewayError::Buffers.into()) }
    }

    async fn read(
        &mut self,
        announced: usize,
        bytes_max: usize,
        budget: Option<&Arc<ByteBudget>>,
    ) -> Result<Bytes, Error> {
        let mut pieces = Chunks::default();
        while let Some(incoming) = self.incoming.as_mut() {
            let data = match poll_fn(|cx| incoming.poll_data(cx)).await {
                None => break,
                Some(Ok(data)) => data,
                Some(Err(BrokenRequest)) => {
                    self.is_broken = true;
                    return Err(ClientError::Aborted.into());
                }
            };
            let is_last = incoming.is_over();
            let length = pieces.len() + data.len();
            if length > bytes_max {
                self.is_broken = true;
                return Err(ClientError::TooLarge { bytes_max }.into());
            }
            if let Some(budget) = budget {
                self.count(length, budget).inspect_err(|_| self.is_broken = true)?;
            }
            pieces.push(data, announced.min(JOINED_BYTES_MAX));
            if is_last {
                break;
            }
        }
        let bytes = pieces.into_bytes();
        self.incoming = None;
        self.bytes = Some(bytes.clone());
        Ok(bytes)
    }
}
