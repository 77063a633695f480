//! Taking in a client's message: bounded in bytes, time and by what the whole process may hold.
//!
//! A message that arrives in one piece is used as it came, without a copy.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::access::limit::least_rate::{LeastRate, RateBound};
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::{Share, Shares};
use crate::clock;
use crate::line::client_body::{BrokenRequest, ClientBody};
use crate::upstream::body::no_memory;
use config::LimitsConfig;
use net::chunks::Chunks;
use protocol::error::{ClientError, Error};

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
    reservation: Option<Share>,
}

impl Intake {
    /// Nothing is read before it is asked for.
    pub(crate) fn new(incoming: ClientBody) -> Self {
        Self { incoming: Some(incoming), bytes: None, is_broken: false, reservation: None }
    }

    pub(crate) async fn collect(
        &mut self,
        limits: &LimitsConfig,
        budget: &Arc<Shares>,
        payer: impl Fn() -> Payer,
    ) -> Result<Bytes, Error> {
        let bytes_max = limits.body_bytes_max;
        let open = || budget.open(payer());
        let incoming = match &mut self.incoming {
            None => return Ok(self.bytes.clone().unwrap_or_default()),
            // As nearly every message is.
            Some(ClientBody::Whole(bytes)) if bytes.len() <= bytes_max => {
                let bytes = std::mem::take(bytes);
                self.count(bytes.len(), &open)?;
                self.incoming = None;
                self.bytes = Some(bytes.clone());
                return Ok(bytes);
            }
            Some(incoming) => incoming,
        };
        let announced = incoming.announced();
        if announced > bytes_max as u64 {
            return Err(ClientError::TooLarge { bytes_max }.into());
        }
        let announced = usize::try_from(announced).unwrap_or(usize::MAX);
        let read = self.read(announced, bytes_max, Some((&open, RateBound::of_bodies(limits))));
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
    pub(crate) fn take_reservation(&mut self) -> Option<Share> {
        self.reservation.take()
    }

    /// True if bytes of the message are still on the connection, so that it cannot be used again.
    pub(crate) fn is_unread(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| !incoming.is_over())
    }

    /// Counts what has arrived: what is only announced costs its sender nothing.
    fn count(&mut self, length: usize, open: &dyn Fn() -> Share) -> Result<(), Error> {
        if length <= UNCOUNTED_BYTES {
            return Ok(());
        }
        self.reservation.get_or_insert_with(open).grow_to(length).map_err(no_memory)
    }

    async fn read(
        &mut self,
        announced: usize,
        bytes_max: usize,
        counted: Option<(&dyn Fn() -> Share, RateBound)>,
    ) -> Result<Bytes, Error> {
        let mut pieces = Chunks::default();
        let mut rate: Option<LeastRate> = None;
        while let Some(incoming) = self.incoming.as_mut() {
            let next = poll_fn(|cx| incoming.poll_data(cx));
            let data = match rate {
                Some(rate) => clock::until(rate.deadline(), next).await,
                None => Some(next.await),
            };
            let data = match data {
                None => {
                    self.is_broken = true;
                    return Err(ClientError::TooSlow.into());
                }
                Some(None) => break,
                Some(Some(Ok(data))) => data,
                Some(Some(Err(BrokenRequest))) => {
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
            if let Some((open, bound)) = counted {
                let now = clock::now();
                match &mut rate {
                    Some(rate) => rate.receive(data.len(), now),
                    None if !is_last => rate = bound.start(0, now),
                    None => {}
                }
                self.count(length, open).inspect_err(|_| self.is_broken = true)?;
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
