//! Grants and accounts of sign-in: opened, renewed, ended, each by compare-and-set on what was read.
//!
//! A grant is one client's sign-in at one endpoint; an account is the person behind it, with the provider's refresh token and
//! what the provider said at the last check. The decisions are the crate `identity`'s; here they are made to last.
//!
//! | file | what it is |
//! |---|---|
//! | `records.rs`, `records_answer.rs` | records by name, in a file or in Redis |
//! | `redis_records.rs` | those in Redis |
//! | `kinds.rs` | the kinds of records |
//! | `news.rs` | what happened to grants while tokens of theirs are good |
//!
//! Invariants: whoever loses against another writer reads anew and overwrites nothing; an account names each of its grants, and
//! goes with the last; an end is remembered for as long as a token of the grant may last, over restarts and at all gateways;
//! every record is sealed and bound to its name.

mod kinds;
pub(crate) mod news;
mod records;
mod records_answer;
mod redis_records;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use config::Config;
use identity::sealed::account::{AccountRecord, GRANTS_MAX};
use identity::sealed::fingerprint::{Fingerprint, GrantId};
use identity::sealed::grant::GrantRecord;
use identity::sealed::{Nonce, OpenFault, Sealable, Seals};
use store::{Change, Changes, Expected, Limits, Name, NewRecord, Outcome, Record, Sizes, Store, StoreError};

use self::kinds::{ACCOUNT, NEWS, ONCE, TURN};
use self::news::{GrantNews, News};
use self::records::Records;
use self::records_answer::RecordsError;
use self::redis_records::RedisRecords;
use crate::clock::now_s;
use crate::redis::Redis;
use crate::redis::peer_message::PeerMessage;
use crate::redis::{Unavailable, Urgency};

/// The file of sign-ins in the state directory.
pub(crate) const STORE_FILE: &str = "sign-ins.redb";
/// A grant and its account take 2 KiB of the file at most times.
const RECORDS_MAX: u64 = 1_000_000;
const FILE_BYTES_MAX: u64 = 4 << 30;
/// Commits, and reads, that wait for the disk.
const QUEUE_MAX: usize = 1024;
/// The longest that a token lasts, whatever the configuration says now or said before.
const TOKEN_LIFE_MAX_S: u64 = 25 * 60 * 60;
/// So often somebody else may have changed a record before it is given up.
const ATTEMPTS_MAX: usize = 8;
/// Grants that are read at once.
const PAGE: usize = 256;
/// An account stays for a day after its last change has no grant, or after the last grant that it names could end.
const ACCOUNT_SPARE_S: u64 = 24 * 60 * 60;

/// Grants and accounts, for all threads.
#[derive(Debug)]
pub(crate) struct Grants {
    records: Records,
    /// `None`: there is no `[sign_in]` now.
    seals: ArcSwapOption<Seals>,
    /// The way to other replicas.
    shared: Option<Arc<Redis>>,
    pub(crate) news: Arc<GrantNews>,
    /// News may have been missed.
    is_behind: AtomicBool,
}

/// A value as it was read, to be changed by who read it.
#[derive(Clone, Debug)]
pub(crate) struct Held<T> {
    pub value: T,
    generation: u64,
}

/// The end of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Done,
    /// Somebody else has changed it meanwhile. Nothing was done.
    Late,
}

/// A failure. Nothing of it is for clients.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GrantsError {
    #[error("the store of sign-ins: {0}")]
    Records(#[from] RecordsError),
    /// Others changed it again and again.
    #[error("the store of sign-ins: {0} is changed by others all the time")]
    Contended(String),
    /// It does not fit into a record.
    #[error("the store of sign-ins: {0} is too long for a record")]
    TooLong(&'static str),
    #[error("there is no [sign_in]")]
    Off,
    #[error("no randomness")]
    Randomness,
}

/// The reason that sign-ins cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nowhere to keep them.
    #[error("there is no place for sign-ins: write `state_directory`, or add [shared] with a Redis")]
    NoPlace,
}

/// The right to ask the provider about an account, which one gateway has at a time.
#[derive(Debug)]
pub(crate) struct Turn {
    name: Name,
    generation: u64,
}

/// Sign-ins as an operator sees them.
#[derive(Debug, Default)]
pub(crate) struct AccountsPage {
    pub accounts: Vec<(AccountRecord, Vec<GrantRecord>)>,
    /// The name behind which the next page begins.
    pub next: Option<String>,
}

impl Grants {
    /// Opens the store that the configuration says: Redis where gateways share one, else a file. `None`: there is no
    /// `[sign_in]`. Blocks.
    pub(crate) fn open(
        config: &Config,
        shared: Option<&Arc<Redis>>,
        news: &Arc<GrantNews>,
    ) -> Result<Option<Arc<Self>>, OpenError> {
        if config.sign_in.is_none() {
            return Ok(None);
        }
        let records = match (shared, &config.state_directory) {
            (Some(redis), _) => Records::Redis(RedisRecords::new(Arc::clone(redis))),
            (None, Some(folder)) => {
                let limits =
                    Limits { records_max: RECORDS_MAX, file_bytes_max: FILE_BYTES_MAX, queue_max: QUEUE_MAX };
                Records::File(Store::open(&folder.join(STORE_FILE), now_s(), limits)?)
            }
            (None, None) => return Err(OpenError::NoPlace),
        };
        let (shared, news) = (shared.cloned(), Arc::clone(news));
        Ok(Some(Arc::new(Self {
            records,
            seals: ArcSwapOption::empty(),
            shared,
            news,
            is_behind: true.into(),
        })))
    }

    /// Takes the keys of the configuration that is in force.
    pub(crate) fn take_up(&self, seals: Option<Arc<Seals>>) {
        self.seals.store(seals);
    }

    /// The grant of this name, if it has not ended.
    pub(crate) async fn grant(&self, id: GrantId) -> Result<Option<Held<GrantRecord>>, GrantsError> {
        let found: Option<Held<GrantRecord>> = self.read(&id.record_name()).await?;
        Ok(found.filter(|held| held.value.id == id))
    }

    /// The account of this name.
    pub(crate) async fn account(
        &self,
        account: Fingerprint,
    ) -> Result<Option<Held<AccountRecord>>, GrantsError> {
        let found: Option<Held<AccountRecord>> = self.read(&account.record_name(ACCOUNT)).await?;
        Ok(found.filter(|held| held.value.fingerprint() == account))
    }

    /// The grants of an account, the oldest first.
    pub(crate) async fn of_account(&self, account: &AccountRecord) -> Result<Vec<GrantRecord>, GrantsError> {
        let mut grants = Vec::new();
        for id in &account.grants {
            grants.extend(self.grant(*id).await?.map(|held| held.value));
        }
        Ok(grants)
    }

    /// Opens a grant for a person who has just signed in. `account` is what the provider says of them now; its grants are those
    /// that stand in the store. Beyond `grants_max` the grant ends that was unused for longest. Returns the account as it was.
    pub(crate) async fn open_grant(
        &self,
        account: &AccountRecord,
        grant: &GrantRecord,
        grants_max: usize,
    ) -> Result<Option<AccountRecord>, GrantsError> {
        let name = account.fingerprint().record_name(ACCOUNT);
        let grants_max = grants_max.clamp(1, GRANTS_MAX);
        for _ in 0..ATTEMPTS_MAX {
            let before: Option<Held<AccountRecord>> = self.read(&name).await?;
            let mut next = account.clone();
            // Some providers give a refresh token at the first consent alone.
            if next.refresh_token.is_none() {
                next.refresh_token = before.as_ref().and_then(|held| held.value.refresh_token.clone());
            }
            next.grants = before.as_ref().map(|held| held.value.grants.clone()).unwrap_or_default();
            let mut changes = Vec::new();
            let mut living = self.of_account(&next).await?;
            let mut ousted = None;
            next.grants.retain(|id| living.iter().any(|grant| grant.id == *id));
            if living.len() >= grants_max {
                // Those whose code was never used go first.
                living.sort_by_key(|grant| (grant.generation > 0, grant.used_s));
                let oldest = living.first().map(|grant| grant.id);
                if let Some(held) = match oldest {
                    Some(oldest) => self.grant(oldest).await?,
                    None => None,
                } {
                    next.grants.retain(|id| *id != held.value.id);
                    changes.extend(self.changes_of_end(&held).await?);
                    ousted = Some(held.value.id);
                }
            }
            next.grants.push(grant.id);
            let ends_s = living.iter().map(|grant| grant.ends_s).fold(grant.ends_s, u64::max);
            let mut change = self.account_change(&name, before.as_ref(), &next, ends_s)?;
            if before.is_none()
                && let Some(unreadable) = self.records.read(&change.name).await?
            {
                // Its key is gone: the person signs in again.
                change.expected = Expected::Generation(unreadable.generation);
            }
            changes.push(change);
            changes.push(self.create(&grant.id.record_name(), grant, grant.over_s())?);
            if self.commit(changes).await? == Written::Done {
                if let Some(ousted) = ousted {
                    self.tell(ousted, News::Ended);
                }
                return Ok(before.map(|held| held.value));
            }
        }
        Err(GrantsError::Contended(name))
    }

    /// Writes the next state of a grant, if the one before still stands there.
    pub(crate) async fn replace_grant(
        &self,
        held: &Held<GrantRecord>,
        next: &GrantRecord,
    ) -> Result<Written, GrantsError> {
        let name = next.id.record_name();
        let record = self.sealed(&name, next, next.over_s())?;
        self.commit(vec![Change::replace(name_of(&name)?, held.generation, record)]).await
    }

    /// Writes the next state of an account, if the one before still stands there.
    pub(crate) async fn replace_account(
        &self,
        held: &Held<AccountRecord>,
        next: &AccountRecord,
    ) -> Result<Written, GrantsError> {
        let name = next.fingerprint().record_name(ACCOUNT);
        let ends_s = self.of_account(next).await?.iter().map(|grant| grant.ends_s).max().unwrap_or_default();
        let change = self.account_change(&name, Some(held), next, ends_s)?;
        self.commit(vec![change]).await
    }

    /// Ends a grant: from now on, and at every gateway within a second. `None`: it has ended before.
    pub(crate) async fn end(&self, id: GrantId) -> Result<Option<GrantRecord>, GrantsError> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(held) = self.grant(id).await? else {
                // The answer of the store may have got lost when it was ended.
                let news = self.records.read(&news_name(id)?).await?;
                if news.is_some_and(|record| News::read(&record.value) == Some(News::Ended)) {
                    self.tell(id, News::Ended);
                }
                return Ok(None);
            };
            let mut changes = self.changes_of_end(&held).await?;
            if let Some(account) = self.account(held.value.account).await? {
                let mut next = account.value.clone();
                next.grants.retain(|grant| *grant != id);
                changes.push(self.account_without(&account, &next).await?);
            }
            if self.commit(changes).await? == Written::Done {
                self.tell(id, News::Ended);
                return Ok(Some(held.value));
            }
        }
        Err(GrantsError::Contended(id.record_name()))
    }

    /// Ends all grants of an account, and forgets it. Returns those that ended.
    pub(crate) async fn end_account(&self, account: Fingerprint) -> Result<Vec<GrantRecord>, GrantsError> {
        let mut ended = Vec::new();
        // Another sign-in may be under way: it is ended, too, if it was opened before the last look.
        while let Some(held) = self.account(account).await? {
            if held.value.grants.is_empty() {
                let name = account.record_name(ACCOUNT);
                if self.commit(vec![Change::delete(name_of(&name)?, held.generation)]).await? == Written::Done
                {
                    break;
                }
                continue;
            }
            for id in &held.value.grants {
                match self.end(*id).await? {
                    Some(grant) => ended.push(grant),
                    None => self.forget_grant(account, *id).await?,
                }
            }
        }
        Ok(ended)
    }

    /// Takes the name of a grant that is over off its account.
    async fn forget_grant(&self, account: Fingerprint, id: GrantId) -> Result<(), GrantsError> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(held) = self.account(account).await? else { return Ok(()) };
            let mut next = held.value.clone();
            next.grants.retain(|grant| *grant != id);
            if next.grants == held.value.grants {
                return Ok(());
            }
            let change = self.account_without(&held, &next).await?;
            if self.commit(vec![change]).await? == Written::Done {
                return Ok(());
            }
        }
        Err(GrantsError::Contended(account.record_name(ACCOUNT)))
    }

    /// The right to ask the provider about an account for `life_s`. `None`: another has it.
    pub(crate) async fn take_turn(
        &self,
        account: Fingerprint,
        life_s: u64,
    ) -> Result<Option<Turn>, GrantsError> {
        let name = name_of(&account.record_name(TURN))?;
        let record = plain(Vec::new(), now_s().saturating_add(life_s))?;
        let changes = Changes::one(Change::create(name.clone(), record));
        Ok(match self.records.commit(changes).await? {
            Outcome::Committed(generations) => {
                generations.first().copied().flatten().map(|generation| Turn { name, generation })
            }
            Outcome::Conflict => None,
        })
    }

    /// Gives the right back. One that cannot be given back ends by its time.
    pub(crate) async fn end_turn(&self, turn: Turn) {
        let changes = Changes::one(Change::delete(turn.name, turn.generation));
        if let Err(error) = self.records.commit(changes).await {
            tracing::debug!(%error, "a turn at the provider ends by its time");
        }
    }

    /// True for the first use of what may be used once, until `until_s`, at all gateways.
    pub(crate) async fn is_first_use(&self, what: &[&str], until_s: u64) -> Result<bool, GrantsError> {
        let name = name_of(&Fingerprint::of(what).record_name(ONCE))?;
        let change = Change::create(name, plain(Vec::new(), until_s)?);
        Ok(matches!(self.records.commit(Changes::one(change)).await?, Outcome::Committed(_)))
    }

    /// A page of all accounts with their grants, behind `after`.
    pub(crate) async fn accounts(
        &self,
        after: Option<&str>,
        count_max: usize,
    ) -> Result<AccountsPage, GrantsError> {
        let after = after.and_then(|after| Name::new(after).ok());
        let found = self.records.names(ACCOUNT, after.as_ref(), count_max).await?;
        let mut page = AccountsPage::default();
        for name in &found.names {
            if let Some(held) = self.read::<AccountRecord>(name.as_str()).await? {
                let grants = self.of_account(&held.value).await?;
                page.accounts.push((held.value, grants));
            }
        }
        page.next = found.next.as_ref().map(Name::to_string);
        Ok(page)
    }

    /// Tells all gateways that tokens which were issued before now say what was true of the person before.
    pub(crate) async fn note_change(&self, account: &AccountRecord) -> Result<(), GrantsError> {
        let news = News::ChangedAt(now_s());
        for id in &account.grants {
            let name = news_name(*id)?;
            for _ in 0..ATTEMPTS_MAX {
                let record = plain(news.bytes(), now_s().saturating_add(TOKEN_LIFE_MAX_S))?;
                let change = match self.records.read(&name).await? {
                    Some(before) if News::read(&before.value) == Some(News::Ended) => break,
                    Some(before) => Change::replace(name.clone(), before.generation, record),
                    None => Change::create(name.clone(), record),
                };
                if self.commit(vec![change]).await? == Written::Done {
                    self.tell(*id, news);
                    break;
                }
            }
        }
        Ok(())
    }

    /// News may have been missed.
    pub(crate) fn doubt_news(&self) {
        self.is_behind.store(true, Ordering::Release);
    }

    /// True until the news that may have been missed was read.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Acquire)
    }

    /// Reads the news of all grants: at the start, and after other gateways may have told something in vain.
    pub(crate) async fn learn_news(&self) -> Result<(), GrantsError> {
        // What is missed while it is read is read again.
        self.is_behind.store(false, Ordering::Release);
        let learnt = self.read_news().await;
        if learnt.is_err() {
            self.doubt_news();
        }
        learnt
    }

    async fn read_news(&self) -> Result<(), GrantsError> {
        let mut after = None;
        loop {
            let page = self.records.names(NEWS, after.as_ref(), PAGE).await?;
            for name in &page.names {
                let Some(id) = grant_of(name) else { continue };
                let news = self.records.read(name).await?.and_then(|record| News::read(&record.value));
                if let Some(news) = news.filter(|news| self.news.of(id) != Some(*news)) {
                    self.hear(id, news);
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Removes what is over, of a file. Returns its sizes; `None`: Redis does so itself.
    pub(crate) async fn sweep(&self) -> Result<Option<Sizes>, GrantsError> {
        let Records::File(file) = &self.records else { return Ok(None) };
        while file.sweep(now_s()).await.map_err(RecordsError::from)?.has_more {}
        Ok(Some(file.sizes()))
    }

    /// Another gateway has told something of a grant.
    pub(crate) fn hear_told(&self, id: [u8; 16], told: &[u8]) {
        if let Some(news) = News::read(told) {
            self.hear(GrantId(id), news);
        }
    }

    fn hear(&self, id: GrantId, news: News) {
        self.news.note(id, news, now_s().saturating_add(TOKEN_LIFE_MAX_S));
    }

    fn tell(&self, id: GrantId, news: News) {
        self.hear(id, news);
        if let Some(shared) = &self.shared {
            // A replica that misses it reads the record once it is connected again.
            shared.announce(&PeerMessage::GrantNews(id.0, news.bytes()), Urgency::Dropped);
        }
    }

    /// The changes that end a grant, without those of its account.
    async fn changes_of_end(&self, held: &Held<GrantRecord>) -> Result<Vec<Change>, GrantsError> {
        let grant = name_of(&held.value.id.record_name())?;
        let news = news_name(held.value.id)?;
        let record = plain(News::Ended.bytes(), now_s().saturating_add(TOKEN_LIFE_MAX_S))?;
        let of_news = match self.records.read(&news).await? {
            Some(before) => Change::replace(news, before.generation, record),
            None => Change::create(news, record),
        };
        Ok(vec![Change::delete(grant, held.generation), of_news])
    }

    /// The change of an account that loses a grant; it goes with the last one.
    async fn account_without(
        &self,
        held: &Held<AccountRecord>,
        next: &AccountRecord,
    ) -> Result<Change, GrantsError> {
        let name = next.fingerprint().record_name(ACCOUNT);
        if next.grants.is_empty() {
            return Ok(Change::delete(name_of(&name)?, held.generation));
        }
        let ends_s = self.of_account(next).await?.iter().map(|grant| grant.ends_s).max().unwrap_or_default();
        self.account_change(&name, Some(held), next, ends_s)
    }

    fn account_change(
        &self,
        name: &str,
        before: Option<&Held<AccountRecord>>,
        next: &AccountRecord,
        ends_s: u64,
    ) -> Result<Change, GrantsError> {
        let until_s = ends_s.max(now_s()).saturating_add(ACCOUNT_SPARE_S);
        let record = self.sealed(name, next, until_s)?;
        let name = name_of(name)?;
        Ok(match before {
            Some(held) => Change::replace(name, held.generation, record),
            None => Change::create(name, record),
        })
    }

    fn create<S: Sealable>(&self, name: &str, value: &S, until_s: u64) -> Result<Change, GrantsError> {
        Ok(Change::create(name_of(name)?, self.sealed(name, value, until_s)?))
    }

    fn sealed<S: Sealable>(&self, name: &str, value: &S, until_s: u64) -> Result<NewRecord, GrantsError> {
        let seals = self.seals.load_full().ok_or(GrantsError::Off)?;
        let mut nonce = Nonce::default();
        getrandom::fill(&mut nonce).map_err(|_| GrantsError::Randomness)?;
        let sealed = seals.seal_record(nonce, name, value).ok_or(GrantsError::TooLong(S::KIND.purpose()))?;
        plain(sealed, until_s)
    }

    /// Reads and opens a record. One that does not open is treated as none: its key is gone, or it is not ours.
    async fn read<S: Sealable>(&self, name: &str) -> Result<Option<Held<S>>, GrantsError> {
        let seals = self.seals.load_full().ok_or(GrantsError::Off)?;
        let found = self.records.read(&name_of(name)?).await?;
        let Some(Record { generation, value, .. }) = found else { return Ok(None) };
        match seals.open_record(&value, name, now_s()) {
            Ok(value) => Ok(Some(Held { value, generation })),
            Err(OpenFault::Expired) => Ok(None),
            Err(OpenFault::Unknown) => {
                tracing::warn!(
                    record = name,
                    "a record of sign-in does not open: its key stands no longer in the file of [sign_in], or somebody else wrote it"
                );
                Ok(None)
            }
        }
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Written, GrantsError> {
        let changes = Changes::new(changes).map_err(|_| GrantsError::TooLong("a change"))?;
        Ok(match self.records.commit(changes).await? {
            Outcome::Committed(_) => Written::Done,
            Outcome::Conflict => Written::Late,
        })
    }
}

impl From<Unavailable> for GrantsError {
    fn from(fault: Unavailable) -> Self {
        Self::Records(fault.into())
    }
}

fn name_of(name: &str) -> Result<Name, GrantsError> {
    Name::new(name).map_err(|_| GrantsError::TooLong("a name"))
}

fn plain(value: Vec<u8>, until_s: u64) -> Result<NewRecord, GrantsError> {
    NewRecord::new(value, until_s).map_err(|_| GrantsError::TooLong("a record"))
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
