//! Records of sign-in where they are kept: in a file of the state directory, or in Redis for several gateways.
//!
//! Both do the same: a commit of all its changes or none, each judged by the generation that it was made for, durable before
//! its result is known.

use store::{Changes, Name, Outcome, Record, Store};

use super::records_answer::{NamesPage, RecordsError};
use super::redis_records::RedisRecords;
use crate::clock::now_s;

/// The place of records.
#[derive(Debug)]
pub(crate) enum Records {
    /// A file of this gateway alone.
    File(Store),
    /// Redis, which several gateways share.
    Redis(RedisRecords),
}

impl Records {
    /// The record of this name, if there is one.
    pub(crate) async fn read(&self, name: &Name) -> Result<Option<Record>, RecordsError> {
        let record = match self {
            Self::File(file) => file.read(name.clone(), now_s()).await?,
            Self::Redis(redis) => redis.read(name).await?,
        };
        Ok(record.filter(|record| record.exists(now_s())))
    }

    /// Does all changes or none. An error that is no conflict leaves it open whether they were done.
    pub(crate) async fn commit(&self, changes: Changes) -> Result<Outcome, RecordsError> {
        match self {
            Self::File(file) => Ok(file.commit(changes, now_s()).await?),
            Self::Redis(redis) => redis.commit(changes, now_s()).await,
        }
    }

    /// Up to `count_max` names of this kind, behind `after`.
    pub(crate) async fn names(
        &self,
        kind: &str,
        after: Option<&Name>,
        count_max: usize,
    ) -> Result<NamesPage, RecordsError> {
        match self {
            Self::File(file) => {
                let prefix = format!("{kind}/");
                let page = file.list(&prefix, after.cloned(), count_max, now_s()).await?;
                let names = page.records.into_iter().map(|(name, _)| name).collect();
                Ok(NamesPage { names, next: page.next })
            }
            Self::Redis(redis) => redis.names(kind, after, count_max).await,
        }
    }
}
