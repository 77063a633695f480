//! Grants in a store that is a file: what ends with what, and what somebody else wrote.

use tempfile::TempDir;

use crate::grants::*;

/// A store with the grants of one person, and what it is kept in.
struct Kept {
    grants: Grants,
    _folder: TempDir,
}

fn account() -> AccountRecord {
    AccountRecord {
        issuer: "https://login.example.com".into(),
        subject: "alice".into(),
        principal: "jwt:https://login.example.com alice".into(),
        name: "Alice".into(),
        groups: Vec::new(),
        claims: Vec::new(),
        refresh_token: None,
        checked_s: now_s(),
        unanswered_since_s: None,
        grants: Vec::new(),
    }
}

fn grant(number: u8) -> GrantRecord {
    GrantRecord {
        id: GrantId([number; 16]),
        account: account().fingerprint(),
        principal: account().principal,
        client_id: "c".into(),
        client_name: "C".into(),
        endpoint: "https://mcp.example.com/mcp".into(),
        scopes: Vec::new(),
        opened_s: now_s(),
        used_s: now_s(),
        ends_s: now_s() + 1000,
        idle_max_s: 1000,
        generation: 0,
        rotated_s: now_s(),
    }
}

impl Kept {
    fn new() -> Self {
        Self::with(10_000)
    }

    /// With room for so many records.
    fn with(records_max: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let limits = Limits { records_max, file_bytes_max: 4 << 30, queue_max: QUEUE_MAX };
        let file = Store::open(&folder.path().join(STORE_FILE), now_s(), limits).expect("a store");
        let seals = Seals::ephemeral(&[7; 32]).expect("keys");
        let grants = Grants {
            records: Records::File(file),
            folder: None,
            health: SignInHealth::default(),
            seals: ArcSwapOption::from_pointee(seals),
            opening: OpeningTurns::default(),
            turns: Mutex::default(),
            shared: None,
            news: Arc::default(),
            is_behind: false.into(),
            log_position: AtomicU64::new(0),
        };
        Self { grants, _folder: folder }
    }

    async fn open(&self, numbers: std::ops::Range<u8>) {
        for number in numbers {
            self.grants.open_grant(&account(), &grant(number), GRANTS_MAX).await.expect("opened");
        }
    }

    /// The account as it stands there.
    async fn account(&self) -> Option<AccountRecord> {
        let name: Fingerprint = account().fingerprint();
        self.grants.account(name).await.expect("read").map(|held| held.value)
    }

    fn commits(&self) -> u64 {
        let Records::File(file) = &self.grants.records else { return 0 };
        file.sizes().commits
    }
}

#[tokio::test]
async fn sign_ins_of_one_person_at_once_are_all_kept() {
    const AT_ONCE: u8 = 32;
    let kept = Kept::new();
    let opening = (0..AT_ONCE).map(|number| kept.open(number..number + 1));
    futures_util::future::join_all(opening).await;
    assert_eq!(kept.account().await.expect("an account").grants.len(), usize::from(AT_ONCE));
}

#[tokio::test]
async fn a_sign_in_since_somebody_was_judged_goes_on() {
    let kept = Kept::new();
    kept.open(0..5).await;
    let judged = kept.account().await.expect("an account");
    kept.grants.end(GrantId([1; 16])).await.expect("ended").expect("it was there");
    kept.open(5..6).await;
    let ended = kept.grants.end_all(judged.fingerprint(), &judged.grants).await.expect("ended");
    let ids: Vec<u8> = ended.iter().map(|grant| grant.id.0[0]).collect();
    assert_eq!(ids, [0, 2, 3, 4]);
    assert_eq!(kept.account().await.expect("an account").grants, [GrantId([5; 16])]);
    for number in 0..6 {
        let id = GrantId([number; 16]);
        let is_there = kept.grants.grant(id).await.expect("read").is_some();
        let news = kept.grants.news.of(id);
        assert_eq!((is_there, news), if number == 5 { (true, None) } else { (false, Some(News::Ended)) });
    }
    let last = kept.grants.end_all(judged.fingerprint(), &[GrantId([5; 16])]).await.expect("ended");
    assert_eq!((last.len(), kept.account().await.is_none()), (1, true), "it goes with its last grant");
}

#[tokio::test]
async fn many_grants_end_in_few_commits() {
    let kept = Kept::new();
    kept.open(0..64).await;
    let judged = kept.account().await.expect("an account");
    let before = kept.commits();
    let ended = kept.grants.end_all(judged.fingerprint(), &judged.grants).await.expect("ended");
    assert_eq!((ended.len(), kept.account().await.is_none()), (64, true));
    assert!(kept.commits() - before <= 22, "{}", kept.commits() - before);
}

#[tokio::test]
async fn at_a_full_store_the_provider_is_asked_and_changed_groups_are_known() {
    let kept = Kept::with(2);
    kept.open(0..1).await;
    let full = kept.grants.is_first_use(&["x"], now_s() + 60).await;
    assert!(matches!(full, Err(GrantsError::Records(RecordsError::File(StoreError::Full(_))))), "{full:?}");
    let name = account().fingerprint();
    let take = async || kept.grants.take_turn(name, 60).await.expect("it needs no record");
    let turn = take().await.expect("it is free");
    assert!(take().await.is_none(), "somebody has it");
    kept.grants.end_turn(turn).await;
    assert!(take().await.is_some(), "it was given back");
    let person = kept.account().await.expect("an account");
    kept.grants.note_change(&person).await.expect("it is known");
    assert!(matches!(kept.grants.news.of(GrantId([0; 16])), Some(News::ChangedAt(_))));
}

/// As who can write to the store may do.
#[tokio::test]
async fn must_16_records_that_were_swapped_or_copied_are_none() {
    let kept = Kept::new();
    kept.open(0..2).await;
    let name = |number: u8| Name::new(&GrantId([number; 16]).record_name()).expect("a name");
    let of_account = Name::new(&account().fingerprint().record_name(ACCOUNT)).expect("a name");
    let records = &kept.grants.records;
    let read = async |name: &Name| records.read(name).await.expect("read").expect("a record");
    let (one, another, person) = (read(&name(0)).await, read(&name(1)).await, read(&of_account).await);
    let write = async |name: &Name, value: &Record| {
        let before = read(name).await.generation;
        let record = NewRecord::new(value.value.clone(), value.until_s).expect("short");
        let change = Changes::one(Change::replace(name.clone(), before, record));
        assert!(matches!(records.commit(change).await, Ok(Outcome::Committed(_))));
    };
    write(&name(0), &another).await;
    write(&name(1), &one).await;
    for number in 0..2 {
        assert!(kept.grants.grant(GrantId([number; 16])).await.expect("read").is_none(), "{number}");
    }
    write(&of_account, &one).await;
    assert!(kept.account().await.is_none());
    // Back at their places, they are what they were.
    write(&name(0), &one).await;
    write(&of_account, &person).await;
    assert!(kept.grants.grant(GrantId([0; 16])).await.expect("read").is_some());
    assert_eq!(kept.account().await.expect("an account").grants.len(), 2);
    assert_eq!(kept.grants.news.of(GrantId([0; 16])), None, "nothing ended");
}
