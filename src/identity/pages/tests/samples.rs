//! One of each page, with given values in every field.

use super::super::*;

/// So many values a page takes at most.
pub(super) const VALUES: usize = 12;

pub(super) struct Sample {
    pub(super) name: &'static str,
    pub(super) page: Page,
    /// Paths of its forms.
    pub(super) forms: &'static [&'static str],
    /// Links of its own; one to the target comes besides.
    pub(super) links: &'static [&'static str],
    pub(super) target: Option<PageTarget>,
}

pub(super) fn samples(values: &[String]) -> Vec<Sample> {
    let value = |at: usize| &*values[at % values.len()];
    let plain = |name, page| Sample { name, page, forms: &[], links: &[], target: None };
    let mut all = consents(values);
    for (name, url) in
        [("on to the provider", "https://login.example.com/a?b="), ("on to an app", "cursor://x/cb?code=")]
    {
        let target = PageTarget::new(&format!("{url}{}", value(0))).expect("a target");
        all.push(Sample { target: Some(target.clone()), ..plain(name, moving_on(&target)) });
        let done =
            SignedInPage { client: value(1), person: value(2), endpoint: value(3), back: Some(&target) };
        let name =
            if name == "on to an app" { "signed in, back to an app" } else { "signed in, back to a site" };
        all.push(Sample {
            links: &[SIGN_INS_PATH],
            target: Some(target.clone()),
            ..plain(name, signed_in(&done))
        });
    }
    let done = SignedInPage { client: value(1), person: value(2), endpoint: value(3), back: None };
    all.push(Sample { links: &[SIGN_INS_PATH], ..plain("signed in", signed_in(&done)) });
    for (name, ended) in
        [("signed out", SignedOutPage::Here), ("signed out of all", SignedOutPage::Everywhere)]
    {
        all.push(Sample { links: &[SIGN_INS_PATH], ..plain(name, signed_out(ended)) });
    }
    all.extend(lists(values));
    for at in 0.. {
        let Some((name, one)) = nth_trouble(at, values) else { break };
        let links: &[&str] = if matches!(one, Trouble::NoSuchPage) { &[SIGN_INS_PATH] } else { &[] };
        all.push(Sample { links, ..plain(name, trouble(&one, value(9))) });
    }
    all
}

fn consents(values: &[String]) -> Vec<Sample> {
    let value = |at: usize| &*values[at % values.len()];
    let (scopes, dropped) = ([value(4), value(5)], [value(6)]);
    let many = vec![value(4); 50];
    let asked = ConsentPage {
        client: value(0),
        known_by: KnownBy::Host(value(1)),
        returns_to: ReturnsTo::Host(value(2)),
        endpoint: value(3),
        scopes: &scopes,
        scopes_dropped: &[],
        provider: value(7),
        person: None,
        request: value(8),
    };
    let cases = [
        ("consent", asked),
        (
            "consent, loopback",
            ConsentPage {
                known_by: KnownBy::Nothing,
                returns_to: ReturnsTo::Loopback(value(2)),
                scopes_dropped: &dropped,
                ..asked
            },
        ),
        (
            "consent, private scheme",
            ConsentPage {
                known_by: KnownBy::Configuration,
                returns_to: ReturnsTo::Scheme(value(2)),
                scopes: &[],
                ..asked
            },
        ),
        (
            "consent, another person",
            ConsentPage { person: Some(value(9)), scopes: &many, scopes_dropped: &many, ..asked },
        ),
    ];
    let sample = |(name, asked)| Sample {
        name,
        page: consent(&asked),
        forms: &[CONSENT_PATH],
        links: &[],
        target: None,
    };
    cases.map(sample).into()
}

fn lists(values: &[String]) -> Vec<Sample> {
    let value = |at: usize| &*values[at % values.len()];
    let row = SignInRow {
        client: value(0),
        known_by: KnownBy::Host(value(1)),
        endpoint: value(2),
        since: value(3),
        last_used: value(4),
        grant: value(5),
    };
    let rows = [
        row,
        SignInRow { client: value(8), known_by: KnownBy::Nothing, ..row },
        SignInRow { known_by: KnownBy::Configuration, ..row },
    ];
    let many = [row; 105];
    let shown = SignInsPage { person: value(6), rows: &rows, form: value(7), ended: 0 };
    let forms: &[&str] = &[SIGN_OUT_PATH, END_PATH, END_ALL_PATH];
    let sample =
        |name, shown, forms| Sample { name, page: sign_ins(&shown), forms, links: &[], target: None };
    vec![
        sample("sign-ins", shown, forms),
        sample("sign-ins, too many", SignInsPage { rows: &many, ended: 1, ..shown }, forms),
        sample("sign-ins, none", SignInsPage { rows: &[], ended: 2, ..shown }, &[SIGN_OUT_PATH]),
    ]
}

fn nth_trouble(at: usize, values: &[String]) -> Option<(&'static str, Trouble<'_>)> {
    let value = |at: usize| &*values[at % values.len()];
    let (client, client_id, redirect, provider, why) = (value(0), value(1), value(2), value(3), value(4));
    Some(match at {
        0 => ("redirect refused", Trouble::RedirectRefused { client, redirect, entry: Some(value(5)) }),
        1 => ("redirect never", Trouble::RedirectRefused { client, redirect, entry: None }),
        2 => ("redirect unregistered", Trouble::RedirectUnregistered { client, redirect }),
        3 => ("client unknown", Trouble::ClientUnknown { client_id }),
        4 => ("client denied", Trouble::ClientDenied { client_id }),
        5 => ("client document", Trouble::ClientDocument { client_id, why }),
        6 => ("resource unknown", Trouble::ResourceUnknown { resource: value(2) }),
        7 => (
            "provider refused",
            Trouble::ProviderRefused { provider, error: value(5), description: value(6) },
        ),
        8 => ("provider slow", Trouble::ProviderSlow { provider, waited_s: 10 }),
        9 => ("provider down", Trouble::ProviderDown { provider }),
        10 => ("provider untrusted", Trouble::ProviderUntrusted { provider }),
        11 => {
            ("requirement failed", Trouble::RequirementFailed { provider, person: value(5), claim: value(6) })
        }
        12 => ("other person", Trouble::OtherPerson { provider, expected: value(5), came: value(6) }),
        13 => ("form expired", Trouble::FormExpired { minutes: 10 }),
        14 => ("other browser", Trouble::OtherBrowser),
        15 => ("wrong host", Trouble::WrongHost { host: value(5), url: value(6) }),
        16 => ("parameter twice", Trouble::ParameterTwice { name: value(5) }),
        17 => ("parameter missing", Trouble::ParameterMissing { name: value(5) }),
        18 => ("parameter invalid", Trouble::ParameterInvalid { name: value(5), why }),
        19 => ("store away", Trouble::StoreAway),
        20 => ("busy", Trouble::Busy { wait_s: 30 }),
        21 => ("no such page", Trouble::NoSuchPage),
        _ => return None,
    })
}
