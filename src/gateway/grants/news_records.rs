//! News of grants as it is kept and told: sealed, each piece bound to the name of its record.
//!
//! News is told at once to gateways that listen. What is told may get lost, so each of them reads the log of news as well, from
//! where it has read before: it has heard of everything within two intervals of
//! [upkeep](crate::runtime), whatever became of what was told.
//!
//! Invariant: news that does not open says nothing, but for a grant that is gone: that has ended. So nobody who can write to
//! the store makes news, and a gateway without the key of another learns of ends all the same.

use std::sync::atomic::Ordering;

use identity::sealed::account::AccountRecord;
use identity::sealed::fingerprint::GrantId;
use identity::sealed::news::News;
use store::{Change, Name, Record, StoreError};

use super::kinds::NEWS;
use super::records::Records;
use super::records_answer::RecordsError;
use super::redis_records::RedisRecords;
use super::{ATTEMPTS_MAX, Grants, GrantsError, PAGE, TOKEN_LIFE_MAX_S, Written, name_of};
use crate::clock::now_s;
use crate::redis::Urgency;
use crate::redis::peer_message::PeerMessage;

/// The clocks of gateways may differ by so much.
const CLOCKS_DIFFER_S: u64 = 60 * 60;

impl Grants {
    /// Tells all gateways that tokens which were issued before now say what was true of the person before. After a failure it is
    /// known here at least, of all grants, and has to be told once more.
    pub(crate) async fn note_change(&self, account: &AccountRecord) -> Result<(), GrantsError> {
        let news = News::ChangedAt(now_s());
        let mut told = Ok(());
        for id in &account.grants {
            match self.keep_change(*id, news).await {
                Ok(()) => {}
                // No other gateway has to hear of it, and this one knows it. Renewals go on at a full store.
                Err(GrantsError::Records(RecordsError::File(error @ StoreError::Full(_)))) => {
                    tracing::warn!(%error, "it is known until a restart alone that groups of a person have changed");
                }
                Err(error) => told = Err(error),
            }
            self.tell(*id, news);
        }
        told
    }

    /// Keeps that a grant's person has changed, unless it has ended.
    async fn keep_change(&self, id: GrantId, news: News) -> Result<(), GrantsError> {
        let name = news_name(id)?;
        for _ in 0..ATTEMPTS_MAX {
            let record = self.sealed(name.as_str(), &news, now_s().saturating_add(TOKEN_LIFE_MAX_S))?;
            let change = match self.records.read(&name).await? {
                Some(before) if self.news_in(id, &before).await? == Some(News::Ended) => return Ok(()),
                Some(before) => Change::replace(name.clone(), before.generation, record),
                None => Change::create(name.clone(), record),
            };
            if self.commit(vec![change]).await? == Written::Done {
                return Ok(());
            }
        }
        Err(GrantsError::Contended(name.to_string()))
    }

    /// The change that keeps the end of a grant.
    pub(super) async fn change_of_ended(&self, id: GrantId) -> Result<Change, GrantsError> {
        let name = news_name(id)?;
        let until_s = now_s().saturating_add(TOKEN_LIFE_MAX_S);
        let record = self.sealed(name.as_str(), &News::Ended, until_s)?;
        Ok(match self.records.read(&name).await? {
            Some(before) => Change::replace(name, before.generation, record),
            None => Change::create(name, record),
        })
    }

    /// True for a grant whose end is kept.
    pub(super) async fn has_ended(&self, id: GrantId) -> Result<bool, GrantsError> {
        Ok(match self.records.read(&news_name(id)?).await? {
            Some(record) => self.news_in(id, &record).await? == Some(News::Ended),
            None => false,
        })
    }

    /// News may have been missed that stands before what was read of the log.
    pub(crate) fn doubt_news(&self) {
        self.is_behind.store(true, Ordering::Release);
    }

    /// True where others may have written news, and at the start.
    pub(crate) fn has_news_to_read(&self) -> bool {
        match &self.records {
            Records::File(_) => self.is_behind.load(Ordering::Acquire),
            Records::Redis(redis) => redis.is_connected(),
        }
    }

    /// Reads the news that came since the last time; of all grants at the start, and once other gateways may have told
    /// something in vain.
    pub(crate) async fn learn_news(&self) -> Result<(), GrantsError> {
        // News that is missed while it is read is read again.
        let is_behind = self.is_behind.swap(false, Ordering::AcqRel);
        let learnt = match &self.records {
            Records::File(_) if is_behind => self.read_all_news().await,
            Records::File(_) => Ok(()),
            Records::Redis(redis) => self.read_log(redis, is_behind).await,
        };
        if learnt.is_err() && is_behind {
            self.doubt_news();
        }
        learnt
    }

    async fn read_all_news(&self) -> Result<(), GrantsError> {
        let mut after = None;
        loop {
            let page = self.records.names(NEWS, after.as_ref(), PAGE).await?;
            for name in &page.names {
                let record = self.records.read(name).await?;
                self.learn(name, record.as_ref()).await?;
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn read_log(&self, redis: &RedisRecords, from_start: bool) -> Result<(), GrantsError> {
        if from_start {
            self.log_position.store(0, Ordering::Relaxed);
        }
        loop {
            let oldest_s = now_s().saturating_sub(TOKEN_LIFE_MAX_S + CLOCKS_DIFFER_S);
            let page = redis.log(self.log_position.load(Ordering::Relaxed), PAGE, oldest_s).await?;
            let records = redis.read_each(&page.names).await?;
            for (name, record) in page.names.iter().zip(&records) {
                self.learn(name, record.as_ref().filter(|record| record.exists(now_s()))).await?;
            }
            let Some(position) = page.position else { return Ok(()) };
            self.log_position.store(position, Ordering::Relaxed);
            if !page.has_more {
                return Ok(());
            }
        }
    }

    async fn learn(&self, name: &Name, record: Option<&Record>) -> Result<(), GrantsError> {
        let (Some(id), Some(record)) = (grant_of(name), record) else { return Ok(()) };
        if let Some(news) = self.news_in(id, record).await?
            && self.news.of(id) != Some(news)
        {
            self.hear(id, news);
        }
        Ok(())
    }

    /// The news that a record says.
    async fn news_in(&self, id: GrantId, record: &Record) -> Result<Option<News>, GrantsError> {
        if let Some(news) = self.opened_news(id, &record.value)? {
            return Ok(Some(news));
        }
        let is_gone = self.records.read(&name_of(&id.record_name())?).await?.is_none();
        Ok(is_gone.then_some(News::Ended))
    }

    fn opened_news(&self, id: GrantId, sealed: &[u8]) -> Result<Option<News>, GrantsError> {
        let seals = self.seals.load_full().ok_or(GrantsError::Off)?;
        Ok(seals.open_record(sealed, news_name(id)?.as_str(), now_s()).ok())
    }

    /// Another gateway has told something of a grant. What does not open is read in the log.
    pub(crate) fn hear_told(&self, id: [u8; 16], sealed: &[u8]) {
        let id = GrantId(id);
        if let Ok(Some(news)) = self.opened_news(id, sealed) {
            self.hear(id, news);
        }
    }

    fn hear(&self, id: GrantId, news: News) {
        self.news.note(id, news, now_s().saturating_add(TOKEN_LIFE_MAX_S));
    }

    pub(super) fn tell(&self, id: GrantId, news: News) {
        self.hear(id, news);
        let Some(shared) = &self.shared else { return };
        let sealed = news_name(id).and_then(|name| self.sealed_value(name.as_str(), &news));
        // A gateway that misses it reads it in the log.
        if let Ok(sealed) = sealed {
            shared.announce(&PeerMessage::GrantNews(id.0, sealed), Urgency::Dropped);
        }
    }
}

fn news_name(id: GrantId) -> Result<Name, GrantsError> {
    name_of(&id.record_name().replacen("grant", NEWS, 1))
}

/// The grant that a name of news is about.
fn grant_of(name: &Name) -> Option<GrantId> {
    let digits = name.as_str().strip_prefix(NEWS)?.strip_prefix('/')?;
    let digits: &[u8; 32] = digits.as_bytes().try_into().ok()?;
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.as_chunks::<2>().0) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(GrantId(id))
}
