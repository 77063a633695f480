//! Verdicts of a book on lists, changes and approvals.

use super::*;

const MODES: [PinMode; 3] = [PinMode::Warn, PinMode::Quarantine, PinMode::Block];

fn listed(tools: &[(&str, &str)]) -> Vec<ListedTool> {
    let one = |(name, text): &(&str, &str)| ListedTool {
        name: Some((*name).to_owned()),
        definition: Definition::new((*text).to_owned()),
    };
    tools.iter().map(one).collect()
}

/// A book in which the tools `a` and `b` are pinned with these texts.
fn pinned(mode: PinMode) -> PinBook {
    let mut book = PinBook::new(1 << 20);
    for index in 0..OWN_LISTS {
        let verdict = book.look(ListSource::Own(index), mode, &listed(&[("a", "1"), ("b", "1")]), true);
        assert_eq!((verdict.shown, verdict.findings), (vec![true, true], vec![]));
    }
    assert!(book.complete());
    book
}

fn refused(book: &PinBook) -> Vec<&str> {
    book.refused().into_iter().map(String::as_str).collect()
}

#[test]
fn a_change_is_treated_by_mode() {
    let changed = listed(&[("a", "2"), ("b", "1")]);
    let shown = [[true, true], [false, true], [false, false]];
    for (mode, shown) in MODES.into_iter().zip(shown) {
        let mut book = pinned(mode);
        let verdict = book.look(ListSource::Own(1), mode, &changed, true);
        assert_eq!(verdict.shown, shown, "{mode:?}");
        assert!(verdict.is_turn && verdict.is_dirty && !verdict.is_doubt);
        let hash = changed[0].definition.hash;
        assert_eq!(verdict.findings, [PinFinding { tool: "a".into(), hash, what: PinChange::Changed }]);
        assert_eq!((refused(&book), book.counts()), (vec!["a"], [2, 1, 0]));
        let again = book.look(ListSource::Own(1), mode, &changed, true);
        assert!(again.findings.is_empty() && !again.is_turn && !again.is_dirty);
        assert!(book.approve("a", hash) && !book.approve("a", hash));
        assert!(refused(&book).is_empty());
        assert_eq!(book.look(ListSource::Own(1), mode, &changed, true).shown, [true, true]);
        // The one that was approved before still is.
        assert_eq!(
            book.look(ListSource::Own(0), mode, &listed(&[("a", "1"), ("b", "1")]), true).shown,
            [true; 2]
        );
    }
}

#[test]
fn a_change_that_is_undone_waits_no_more() {
    let mut book = pinned(PinMode::Quarantine);
    let changed = listed(&[("a", "2"), ("b", "1")]);
    for index in [0, 1] {
        book.look(ListSource::Own(index), PinMode::Quarantine, &changed, true);
    }
    let good = listed(&[("a", "1"), ("b", "1")]);
    let verdict = book.look(ListSource::Own(0), PinMode::Quarantine, &good, true);
    assert!(!verdict.is_turn && verdict.shown == [false, true], "the other list still has it");
    let verdict = book.look(ListSource::Own(1), PinMode::Quarantine, &good, true);
    assert!(verdict.is_turn && verdict.shown == [true, true]);
    assert!(!book.approve("a", changed[0].definition.hash));
    assert_eq!(book.counts(), [2, 0, 0]);
}

#[test]
fn a_tool_that_comes_back_changed_has_changed() {
    let mut book = pinned(PinMode::Quarantine);
    book.look(ListSource::Own(0), PinMode::Quarantine, &listed(&[("b", "1")]), true);
    assert!(refused(&book).is_empty());
    let back = listed(&[("a", "2"), ("b", "1")]);
    assert_eq!(book.look(ListSource::Own(0), PinMode::Quarantine, &back, true).shown, [false, true]);
    // Beyond the cut it may still be what it was.
    book.look(ListSource::Own(0), PinMode::Quarantine, &listed(&[("b", "1")]), false);
    assert_eq!(refused(&book), ["a"]);
}

#[test]
fn new_tools_need_approval_where_all_is_blocked() {
    let new = listed(&[("a", "1"), ("b", "1"), ("c", "1")]);
    for (mode, is_shown, what) in [
        (PinMode::Warn, true, None),
        (PinMode::Quarantine, true, None),
        (PinMode::Block, false, Some(PinChange::New)),
    ] {
        let mut book = pinned(mode);
        let verdict = book.look(ListSource::Own(0), mode, &new, true);
        assert_eq!(verdict.shown, [is_shown; 3], "{mode:?}");
        assert_eq!(verdict.findings.first().map(|finding| finding.what), what);
        assert_eq!(book.counts(), if is_shown { [3, 0, 0] } else { [2, 0, 1] });
        assert!(is_shown || book.approve("c", new[2].definition.hash));
        assert_eq!(book.look(ListSource::Own(0), mode, &new, true).shown, [true; 3]);
    }
}

#[test]
fn dialects_may_differ_when_an_upstream_is_first_pinned_and_never_flap() {
    let mut book = PinBook::new(1 << 20);
    let by_list = ["plain", "capable", "old", "old"].map(|text| listed(&[("a", text)]));
    for _ in 0..2 {
        for (index, list) in by_list.iter().enumerate() {
            let verdict = book.look(ListSource::Own(index), PinMode::Block, list, true);
            assert_eq!((verdict.shown, verdict.findings, verdict.is_turn), (vec![true], vec![], false));
        }
        book.complete();
    }
    assert_eq!(book.tools()["a"].approved.len(), 3);
    assert_eq!(book.look(ListSource::Client, PinMode::Block, &by_list[1], true).shown, [true]);
}

#[test]
fn clients_settle_nothing() {
    let mut book = PinBook::new(1 << 20);
    let odd = listed(&[("a", "odd"), ("b", "1")]);
    assert_eq!(book.look(ListSource::Client, PinMode::Quarantine, &odd, true).shown, [false, false]);
    assert!(book.tools().is_empty());
    let mut book = pinned(PinMode::Quarantine);
    let verdict = book.look(ListSource::Client, PinMode::Quarantine, &odd, true);
    assert_eq!(verdict.shown, [false, true]);
    assert!(verdict.is_doubt && !verdict.is_turn && refused(&book).is_empty());
    assert!(!book.look(ListSource::Client, PinMode::Quarantine, &odd, true).is_doubt, "it was known");
    assert!(book.approve("a", odd[0].definition.hash));
    assert_eq!(book.look(ListSource::Client, PinMode::Quarantine, &odd, true).shown, [true, true]);
}

#[test]
fn duplicates_and_names_that_cannot_be_read_do_not_pass() {
    let mut book = pinned(PinMode::Quarantine);
    let twice = listed(&[("a", "1"), ("a", "2"), ("b", "1")]);
    assert_eq!(book.look(ListSource::Own(0), PinMode::Quarantine, &twice, true).shown, [false, false, true]);
    let nameless = ListedTool { name: None, definition: Definition::new("1".into()) };
    let mut book = pinned(PinMode::Block);
    assert_eq!(book.look(ListSource::Own(0), PinMode::Block, &[nameless], true).shown, [false]);
}

#[test]
fn what_is_kept_is_bounded() {
    let mut book = pinned(PinMode::Quarantine);
    let bytes = book.bytes;
    for number in 0..100 {
        let text = number.to_string() + "x";
        for source in [ListSource::Own(0), ListSource::Own(1), ListSource::Client] {
            book.look(source, PinMode::Quarantine, &listed(&[("a", &text), ("b", "1")]), true);
        }
    }
    let pending = &book.tools()["a"].pending;
    assert!(pending.len() <= PENDING_MAX);
    assert!(pending.iter().any(|held| held.definition.text.as_ref() == "99x"));
    assert!(book.bytes < bytes + (PENDING_MAX + 1) * (ENTRY_BYTES + 16));
    let sum: usize = book.tools.iter().map(|(name, tool)| tool_bytes(name, tool)).sum();
    assert_eq!(book.bytes, sum);

    book.set_bytes_max(book.bytes + 10);
    let new = listed(&[("b", "1"), ("c", "1")]);
    let verdict = book.look(ListSource::Own(0), PinMode::Quarantine, &new, true);
    assert_eq!(verdict.shown, [true, false], "what cannot be kept is not believed");
    assert_eq!(verdict.findings.last().map(|finding| finding.what), Some(PinChange::NoRoom));
}

#[test]
fn a_restart_keeps_what_waits_until_it_is_listed_again() {
    let mut before = pinned(PinMode::Quarantine);
    let changed = listed(&[("a", "2"), ("b", "1")]);
    before.look(ListSource::Own(0), PinMode::Quarantine, &changed, true);
    let kept = || {
        let mut tools = before.tools().clone();
        for tool in tools.values_mut() {
            tool.pending.iter_mut().for_each(|held| held.sources = 0);
        }
        PinBook::new(1 << 20).restore(tools, true)
    };
    let mut book = kept();
    assert_eq!(book.look(ListSource::Own(0), PinMode::Quarantine, &changed, true).shown, [false, true]);
    let mut book = kept();
    assert!(book.approve("a", changed[0].definition.hash));
    assert_eq!(book.look(ListSource::Own(0), PinMode::Quarantine, &changed, true).shown, [true, true]);
    let mut book = kept();
    let good = listed(&[("a", "1"), ("b", "1")]);
    assert!(book.look(ListSource::Own(0), PinMode::Quarantine, &good, true).is_dirty);
    assert_eq!(book.counts(), [2, 0, 0]);
}
