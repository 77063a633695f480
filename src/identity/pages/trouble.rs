//! Errors that a person sees, with what their pages name.

/// Why a sign-in does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble<'a> {
    /// The redirect URI is not among those that the configuration allows.
    RedirectRefused {
        /// As the client calls itself; may be empty.
        client: &'a str,
        /// The URI.
        redirect: &'a str,
        /// What the list of `redirects` would have to hold; `None` where no line would allow it.
        entry: Option<&'a str>,
    },
    /// The redirect URI is none of those that the client has registered.
    RedirectUnregistered {
        /// As the client calls itself; may be empty.
        client: &'a str,
        /// The URI.
        redirect: &'a str,
    },
    /// The client id was not issued here, or its key is gone.
    ClientUnknown {
        /// The id.
        client_id: &'a str,
    },
    /// `clients_denied` bars it.
    ClientDenied {
        /// The id.
        client_id: &'a str,
    },
    /// The client's document cannot be had, or is none.
    ClientDocument {
        /// Its URL.
        client_id: &'a str,
        /// The reason, in a sentence.
        why: &'a str,
    },
    /// No endpoint that takes sign-ins is at that address.
    ResourceUnknown {
        /// The address.
        resource: &'a str,
    },
    /// The provider answered with an error.
    ProviderRefused {
        /// Its host.
        provider: &'a str,
        /// The code of the error.
        error: &'a str,
        /// What it said besides; may be empty.
        description: &'a str,
    },
    /// The provider did not answer in time.
    ProviderSlow {
        /// Its host.
        provider: &'a str,
        /// So long was waited.
        waited_s: u64,
    },
    /// The provider cannot be reached, or answers with errors of its own.
    ProviderDown {
        /// Its host.
        provider: &'a str,
    },
    /// What the provider answered does not fit the sign-in.
    ProviderUntrusted {
        /// Its host.
        provider: &'a str,
    },
    /// `require` does not hold.
    RequirementFailed {
        /// Host of the provider.
        provider: &'a str,
        /// The person's name.
        person: &'a str,
        /// The claim that does not hold.
        claim: &'a str,
    },
    /// Another person came back from the provider than the sign-in is for.
    OtherPerson {
        /// Host of the provider.
        provider: &'a str,
        /// The sign-in is for this person.
        expected: &'a str,
        /// This person came.
        came: &'a str,
    },
    /// The form is too old, or has been answered.
    FormExpired {
        /// So long it may be answered.
        minutes: u64,
    },
    /// The form was made for another browser, or this one sends no cookies.
    OtherBrowser,
    /// `Host` is not that of the gateway's sign-in.
    WrongHost {
        /// The host that was asked.
        host: &'a str,
        /// The gateway's `url`.
        url: &'a str,
    },
    /// A parameter stands twice.
    ParameterTwice {
        /// Its name.
        name: &'a str,
    },
    /// A parameter is missing.
    ParameterMissing {
        /// Its name.
        name: &'a str,
    },
    /// A parameter has a value that is not taken.
    ParameterInvalid {
        /// Its name.
        name: &'a str,
        /// What is wrong, in a sentence.
        why: &'a str,
    },
    /// The store of sign-ins cannot be reached.
    StoreAway,
    /// There are too many sign-ins at once.
    Busy {
        /// After so long it may be tried again.
        wait_s: u64,
    },
    /// There is no such page.
    NoSuchPage,
}
