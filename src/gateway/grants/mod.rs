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
//! | `news_records.rs` | the same as it is kept, and told to other gateways |
//! | `opening.rs` | turns of one person's sign-ins |
//! | `fleet.rs` | what several gateways have to agree on |
//! | `health.rs`, `standing.rs` | how the store and the provider do, and what operators see of it |
//!
//! Invariants: whoever loses against another writer reads anew and overwrites nothing; an account names each of its grants, and
//! goes with the last; an end is remembered for as long as a token of the grant may last, over restarts and at all gateways;
//! every record is sealed and bound to its name.

pub(crate) mod fleet;
mod health;
mod kinds;
pub(crate) mod news;
mod news_records;
mod opening;
mod records;
mod records_answer;
mod redis_records;
pub(crate) mod standing;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use arc_swap::ArcSwapOption;
use config::Config;
use identity::sealed::account::{AccountRecord, GRANTS_MAX};
use identity::sealed::fingerprint::{Fingerprint, GrantId};
use identity::sealed::grant::GrantRecord;
use identity::sealed::mark::Mark;
use identity::sealed::news::News;
use identity::sealed::{Nonce, OpenFault, Sealable, Seals};
use parking_lot::Mutex;
use store::{Change, Changes, Expected, Limits, Name, NewRecord, Outcome, Record, Sizes, Store, StoreError};

use self::health::{SignInHealth, grows};
use self::kinds::{ACCOUNT, NEWS, ONCE, TURN};
use self::news::GrantNews;
use self::opening::OpeningTurns;
use self::records::Records;
use self::records_answer::RecordsError;
use self::redis_records::RedisRecords;
use crate::clock::now_s;
use crate::redis::{Redis, Unavailable};

/// The file of sign-ins in the state directory.
pub(crate) const STORE_FILE: &str = "sign-ins.redb";
/// A file that is larger is made smaller at the start, if records take less than this part of it.
const COMPACTED_FROM_BYTES: u64 = 16 << 20;
const COMPACTED_BELOW: u64 = 8;
/// Commits, and reads, that wait for the disk.
const QUEUE_MAX: usize = 1024;
/// The longest that a token lasts, whatever the configuration says now or said before.
const TOKEN_LIFE_MAX_S: u64 = 25 * 60 * 60;
/// So often somebody else may have changed a record before it is given up.
const ATTEMPTS_MAX: usize = 8;
/// Grants that are read at once.
const PAGE: usize = 256;
/// Grants that end in one commit: of each the record goes, and its news comes.
const ENDED_AT_ONCE: usize = 3;
/// An account stays for a day after its last change has no grant, or after the last grant that it names could end.
const ACCOUNT_SPARE_S: u64 = 24 * 60 * 60;

/// Grants and accounts, for all threads.
#[derive(Debug)]
pub(crate) struct Grants {
    records: Records,
    /// The folder of the file.
    folder: Option<PathBuf>,
    health: SignInHealth,
    /// `None`: there is no `[sign_in]` now.
    seals: ArcSwapOption<Seals>,
    opening: OpeningTurns,
    /// Turns at the provider of a gateway that shares nothing, each with its last second.
    turns: Mutex<HashMap<Name, u64>>,
    /// The way to other replicas.
    shared: Option<Arc<Redis>>,
    pub(crate) news: Arc<GrantNews>,
    /// News may have been missed before the place up to which the log was read.
    is_behind: AtomicBool,
    log_position: AtomicU64,
}

/// A value as it was read, to be changed by who read it.
#[derive(Clone, Debug)]
pub(crate) struct Held<T> {
    pub value: T,
    generation: u64,
    /// The last second in which its record exists.
    until_s: u64,
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
    /// Sealed by another gateway, with a key that has not come here yet.
    #[error("the key that another gateway seals with does not stand in the file of [sign_in] here")]
    KeyElsewhere,
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
    /// The reason that one of them at least is left out.
    pub fault: Option<GrantsError>,
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
        let Some(sign_in) = &config.sign_in else { return Ok(None) };
        let records = match (shared, &config.state_directory) {
            (Some(redis), _) => Records::Redis(RedisRecords::new(Arc::clone(redis), &[ACCOUNT], NEWS)),
            (None, Some(folder)) => {
                let limits = Limits {
                    records_max: sign_in.store_records_max as u64,
                    file_bytes_max: sign_in.store_bytes_max as u64,
                    queue_max: QUEUE_MAX,
                };
                Records::File(opened(&folder.join(STORE_FILE), limits)?)
            }
            (None, None) => return Err(OpenError::NoPlace),
        };
        let (shared, news) = (shared.cloned(), Arc::clone(news));
        Ok(Some(Arc::new(Self {
            records,
            folder: config.state_directory.clone(),
            health: SignInHealth::default(),
            seals: ArcSwapOption::empty(),
            opening: OpeningTurns::default(),
            turns: Mutex::default(),
            shared,
            news,
            is_behind: true.into(),
            log_position: AtomicU64::new(0),
        })))
    }

    /// Takes the keys of the configuration that is in force.
    pub(crate) fn take_up(&self, seals: Option<Arc<Seals>>) {
        let before = self.key_names();
        self.seals.store(seals);
        if self.key_names() != before {
            // News that was sealed with a key that has come just now did not open before.
            self.doubt_news();
        }
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
        let _turn = self.opening.of(account.fingerprint()).await;
        for _ in 0..ATTEMPTS_MAX {
            // One look: what others make after it is a conflict, and is not taken for a record whose key is gone.
            let found = self.records.read(&name_of(&name)?).await?;
            let before: Option<Held<AccountRecord>> = match &found {
                Some(record) => self.held(&name, record).await?,
                None => None,
            };
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
            let mut change = self.account_change(&name, before.as_ref(), &next, account_until_s(ends_s))?;
            if let (None, Some(unreadable)) = (&before, &found) {
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
        let change = self.account_change(&name, Some(held), next, account_until_s(ends_s))?;
        self.commit(vec![change]).await
    }

    /// Ends a grant: from now on, and at every gateway within a second. `None`: it has ended before.
    pub(crate) async fn end(&self, id: GrantId) -> Result<Option<GrantRecord>, GrantsError> {
        let Some(held) = self.grant(id).await? else {
            self.learn_end(id).await?;
            return Ok(None);
        };
        Ok(self.end_all(held.value.account, &[id]).await?.pop())
    }

    /// Ends these grants of an account, which goes with its last one. Those that were opened since go on. Returns those that ended.
    pub(crate) async fn end_all(
        &self,
        account: Fingerprint,
        grants: &[GrantId],
    ) -> Result<Vec<GrantRecord>, GrantsError> {
        let mut ended = Vec::new();
        for some in grants.chunks(ENDED_AT_ONCE) {
            ended.extend(self.end_at_once(account, some).await?);
        }
        Ok(ended)
    }

    async fn end_at_once(
        &self,
        account: Fingerprint,
        ids: &[GrantId],
    ) -> Result<Vec<GrantRecord>, GrantsError> {
        for _ in 0..ATTEMPTS_MAX {
            let (mut changes, mut ended) = (Vec::new(), Vec::new());
            for id in ids {
                match self.grant(*id).await?.filter(|held| held.value.account == account) {
                    Some(held) => {
                        changes.extend(self.changes_of_end(&held).await?);
                        ended.push(held.value);
                    }
                    None => self.learn_end(*id).await?,
                }
            }
            if let Some(held) = self.account(account).await? {
                let mut next = held.value.clone();
                next.grants.retain(|grant| !ids.contains(grant));
                if next.grants != held.value.grants {
                    changes.push(self.account_without(&held, &next)?);
                }
            }
            // Deleting comes first: it takes no memory of a Redis that has none left.
            changes.sort_by_key(|change| change.to.is_some());
            if changes.is_empty() || self.commit(changes).await? == Written::Done {
                for grant in &ended {
                    self.tell(grant.id, News::Ended);
                }
                return Ok(ended);
            }
        }
        Err(GrantsError::Contended(account.record_name(ACCOUNT)))
    }

    /// Tells the end of a grant that is not there, if it has ended: the answer of the store may have got lost then.
    async fn learn_end(&self, id: GrantId) -> Result<(), GrantsError> {
        if self.has_ended(id).await? {
            self.tell(id, News::Ended);
        }
        Ok(())
    }

    /// The right to ask the provider about an account for `life_s`. `None`: another has it.
    pub(crate) async fn take_turn(
        &self,
        account: Fingerprint,
        life_s: u64,
    ) -> Result<Option<Turn>, GrantsError> {
        let name = account.record_name(TURN);
        if let Records::File(_) = &self.records {
            return Ok(self.take_own_turn(name_of(&name)?, life_s));
        }
        let taken = self.mark(&name, now_s().saturating_add(life_s)).await?;
        taken.map(|generation| Ok(Turn { name: name_of(&name)?, generation })).transpose()
    }

    /// The same where no other gateway could ask: a store without room has no part in it.
    fn take_own_turn(&self, name: Name, life_s: u64) -> Option<Turn> {
        let now_s = now_s();
        let until_s = now_s.saturating_add(life_s);
        let mut turns = self.turns.lock();
        turns.retain(|_, until_s| *until_s >= now_s);
        match turns.entry(name.clone()) {
            Entry::Occupied(_) => None,
            Entry::Vacant(place) => {
                place.insert(until_s);
                Some(Turn { name, generation: until_s })
            }
        }
    }

    /// Gives the right back. One that cannot be given back ends by its time.
    pub(crate) async fn end_turn(&self, turn: Turn) {
        if let Records::File(_) = &self.records {
            // The next one is somebody else's, if this one was over.
            self.turns.lock().retain(|name, until_s| *name != turn.name || *until_s != turn.generation);
            return;
        }
        let changes = Changes::one(Change::delete(turn.name, turn.generation));
        if let Err(error) = self.records.commit(changes).await {
            tracing::debug!(%error, "a turn at the provider ends by its time");
        }
    }

    /// True for the first use of what may be used once, until `until_s`, at all gateways.
    pub(crate) async fn is_first_use(&self, what: &[&str], until_s: u64) -> Result<bool, GrantsError> {
        Ok(self.mark(&Fingerprint::of(what).record_name(ONCE), until_s).await?.is_some())
    }

    /// The generation of a mark of this name that is new. `None`: it is there already. One that does not open is nobody's.
    async fn mark(&self, name: &str, until_s: u64) -> Result<Option<u64>, GrantsError> {
        for _ in 0..ATTEMPTS_MAX {
            let mut change = self.create(name, &Mark { until_s }, until_s)?;
            if let Some(before) = self.records.read(&change.name).await? {
                if self.opened::<Mark>(name, &before).await?.is_some() {
                    return Ok(None);
                }
                change.expected = Expected::Generation(before.generation);
            }
            if let Outcome::Committed(generations) = self.records.commit(Changes::one(change)).await? {
                return Ok(generations.first().copied().flatten());
            }
        }
        Err(GrantsError::Contended(name.to_owned()))
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
            match self.account_with_grants(name).await {
                Ok(account) => page.accounts.extend(account),
                Err(fault) => page.fault = Some(fault),
            }
        }
        page.next = found.next.as_ref().map(Name::to_string);
        Ok(page)
    }

    async fn account_with_grants(
        &self,
        name: &Name,
    ) -> Result<Option<(AccountRecord, Vec<GrantRecord>)>, GrantsError> {
        let Some(held) = self.read::<AccountRecord>(name.as_str()).await? else { return Ok(None) };
        let grants = self.of_account(&held.value).await?;
        Ok(Some((held.value, grants)))
    }

    /// Removes what is over, of a file. Returns its sizes; `None`: Redis does so itself.
    pub(crate) async fn sweep(&self) -> Result<Option<Sizes>, GrantsError> {
        let Records::File(file) = &self.records else { return Ok(None) };
        while file.sweep(now_s()).await.map_err(RecordsError::from)?.has_more {}
        Ok(Some(file.sizes()))
    }

    /// The changes that end a grant, without those of its account.
    async fn changes_of_end(&self, held: &Held<GrantRecord>) -> Result<Vec<Change>, GrantsError> {
        // Deleting comes first: it takes no memory of a Redis that has none left.
        let grant = name_of(&held.value.id.record_name())?;
        Ok(vec![Change::delete(grant, held.generation), self.change_of_ended(held.value.id).await?])
    }

    /// The change of an account that loses grants; it goes with the last one.
    fn account_without(
        &self,
        held: &Held<AccountRecord>,
        next: &AccountRecord,
    ) -> Result<Change, GrantsError> {
        let name = next.fingerprint().record_name(ACCOUNT);
        if next.grants.is_empty() {
            return Ok(Change::delete(name_of(&name)?, held.generation));
        }
        self.account_change(&name, Some(held), next, held.until_s)
    }

    fn account_change(
        &self,
        name: &str,
        before: Option<&Held<AccountRecord>>,
        next: &AccountRecord,
        until_s: u64,
    ) -> Result<Change, GrantsError> {
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
        plain(self.sealed_value(name, value)?, until_s)
    }

    fn sealed_value<S: Sealable>(&self, name: &str, value: &S) -> Result<Vec<u8>, GrantsError> {
        let seals = self.seals.load_full().ok_or(GrantsError::Off)?;
        let mut nonce = Nonce::default();
        getrandom::fill(&mut nonce).map_err(|_| GrantsError::Randomness)?;
        seals.seal_record(nonce, name, value).ok_or(GrantsError::TooLong(S::KIND.purpose()))
    }

    /// Reads and opens a record.
    async fn read<S: Sealable>(&self, name: &str) -> Result<Option<Held<S>>, GrantsError> {
        let Some(record) = self.records.read(&name_of(name)?).await? else { return Ok(None) };
        self.held(name, &record).await
    }

    /// A record that was read, opened.
    async fn held<S: Sealable>(&self, name: &str, record: &Record) -> Result<Option<Held<S>>, GrantsError> {
        let Record { generation, until_s, .. } = *record;
        Ok(self.opened(name, record).await?.map(|value| Held { value, generation, until_s }))
    }

    /// The value of a record. One that does not open has none: its key is gone, or it is not ours. It is an error where another
    /// gateway has the key.
    async fn opened<S: Sealable>(&self, name: &str, record: &Record) -> Result<Option<S>, GrantsError> {
        let seals = self.seals.load_full().ok_or(GrantsError::Off)?;
        match seals.open_record(&record.value, name, now_s()) {
            Ok(value) => Ok(Some(value)),
            Err(OpenFault::Expired) => Ok(None),
            Err(OpenFault::Unknown) => {
                self.unless_elsewhere(seals.unknown_key_of_record(S::KIND, &record.value)).await?;
                tracing::warn!(
                    record = name,
                    "a record of sign-in does not open: its key stands no longer in the file of [sign_in], or somebody else wrote it"
                );
                Ok(None)
            }
        }
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Written, GrantsError> {
        let grows = grows(&changes);
        let changes = Changes::new(changes).map_err(|_| GrantsError::TooLong("a change"))?;
        let done = self.records.commit(changes).await;
        self.health.note_commit(&done, grows);
        if let Err(RecordsError::File(StoreError::Io(_))) = &done {
            // It may have come through all the same, and news with it. In Redis the log tells.
            self.doubt_news();
        }
        Ok(match done? {
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

/// The end of the record of an account whose last grant may end then.
fn account_until_s(ends_s: u64) -> u64 {
    ends_s.max(now_s()).saturating_add(ACCOUNT_SPARE_S)
}

/// The store in this file. What a great part of its records has left behind is given back to the disk. Blocks.
fn opened(path: &Path, limits: Limits) -> Result<Store, StoreError> {
    let file = Store::open(path, now_s(), limits)?;
    let sizes = file.sizes();
    if sizes.file_bytes > COMPACTED_FROM_BYTES && sizes.bytes() < sizes.file_bytes / COMPACTED_BELOW {
        // Requests that come meanwhile wait. One that cannot be made smaller serves as it is.
        drop(file.compact());
    }
    Ok(file)
}

fn name_of(name: &str) -> Result<Name, GrantsError> {
    Name::new(name).map_err(|_| GrantsError::TooLong("a name"))
}

fn plain(value: Vec<u8>, until_s: u64) -> Result<NewRecord, GrantsError> {
    NewRecord::new(value, until_s).map_err(|_| GrantsError::TooLong("a record"))
}

#[cfg(test)]
mod tests;
